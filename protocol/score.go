package protocol

import "math"

// Score statuses.
const (
	ScoreMeasured   = "measured"
	ScoreUnmeasured = "unmeasured"
	ScoreInvalid    = "invalid"
)

// Reasons why a score is unmeasured (closed).
const (
	ReasonGraderError       = "grader_error"
	ReasonMissingEvidence   = "missing_evidence"
	ReasonMissingSecret     = "missing_secret"
	ReasonUnsupported       = "unsupported"
	ReasonPolicySkip        = "policy_skip"
	ReasonContractViolation = "contract_violation"
	ReasonGraderTimeout     = "grader_timeout"
)

// Score is what a grader says about one metric of a case. Measured: Value is
// set, Pass where the metric can pass. Unmeasured: Reason and Retryable.
// Invalid: Reason contract_violation.
type Score struct {
	GraderID  string   `json:"graderId"`
	Metric    string   `json:"metric"`
	Value     *float64 `json:"value,omitempty"`
	Pass      *bool    `json:"pass,omitempty"`
	Label     string   `json:"label,omitempty"`
	Detail    string   `json:"detail,omitempty"`
	Status    string   `json:"status"`
	Reason    string   `json:"reason,omitempty"`
	Retryable *bool    `json:"retryable,omitempty"`
	Attempts  int      `json:"attempts,omitempty"`
	// Authority is the authority that the case's grader spec gave to a metric
	// of its own; empty: the verdict policy's definition.
	Authority string `json:"authority,omitempty"`
}

// Measured is a score with a number.
func Measured(graderID, metric string, value float64) Score {
	return Score{GraderID: graderID, Metric: metric, Value: &value, Status: ScoreMeasured}
}

// MeasuredPass is a score that passes or fails, with value 1 or 0.
func MeasuredPass(graderID, metric string, pass bool) Score {
	value := 0.0
	if pass {
		value = 1
	}
	s := Measured(graderID, metric, value)
	s.Pass = &pass
	return s
}

// Unmeasured is a score that could not be taken.
func Unmeasured(graderID, metric, reason string, retryable bool, detail string) Score {
	return Score{GraderID: graderID, Metric: metric, Status: ScoreUnmeasured, Reason: reason, Retryable: &retryable, Detail: detail}
}

// Normalize brings a score from outside into one of the three shapes: a status
// that does not fit its fields is mended rather than refused.
func (s Score) Normalize() Score {
	if s.GraderID == "" || s.Metric == "" {
		s.Status, s.Reason = ScoreInvalid, ReasonContractViolation
		s.Value, s.Pass, s.Retryable = nil, nil, nil
		return s
	}
	switch s.Status {
	case ScoreUnmeasured:
		s.Value, s.Pass = nil, nil
		switch s.Reason {
		case ReasonGraderError, ReasonMissingEvidence, ReasonMissingSecret, ReasonUnsupported,
			ReasonPolicySkip, ReasonContractViolation, ReasonGraderTimeout:
		default:
			s.Reason = ReasonUnsupported
		}
		if s.Retryable == nil {
			s.Retryable = new(bool)
		}
	case ScoreInvalid:
		s.Value, s.Pass, s.Retryable, s.Reason = nil, nil, nil, ReasonContractViolation
	default:
		if s.Value == nil || math.IsNaN(*s.Value) || math.IsInf(*s.Value, 0) {
			s.Status, s.Reason = ScoreInvalid, ReasonContractViolation
			s.Value, s.Pass, s.Retryable = nil, nil, nil
			return s
		}
		s.Status, s.Reason, s.Retryable = ScoreMeasured, "", nil
	}
	return s
}
