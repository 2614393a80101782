package api

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/everdict/everdict/coordinator/auth"
)

// Gauges are numbers that are read when /metrics is asked for, such as how much
// is queued. Emit is called from the request's goroutine.
type Gauges interface {
	// Gauges calls emit for each number. labels are names and values in turn;
	// a name always goes with the same label names.
	Gauges(emit func(name, help string, value float64, labels ...string))
}

// metrics are the numbers of the API itself.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	handler  http.Handler
}

func newMetrics(gauges []Gauges) (*metrics, error) {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "everdict_http_requests_total", Help: "HTTP requests by route and status.",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "everdict_http_request_seconds", Help: "Time to answer HTTP requests, without event streams.",
			// From the durable submit of an idle coordinator to a list that scans.
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"method", "route"}),
	}
	all := []prometheus.Collector{
		m.requests, m.seconds, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
	for _, g := range gauges {
		all = append(all, gaugeCollector{g})
	}
	for _, c := range all {
		if err := m.registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	return m, nil
}

// route returns what counts a request of a route. Its series begin with its
// first request, and labels are looked up once and not per request.
func (m *metrics) route(rt route) func(status int, took time.Duration) {
	usual := sync.OnceValue(func() prometheus.Counter {
		return m.requests.WithLabelValues(rt.method, rt.path, strconv.Itoa(rt.status))
	})
	seconds := sync.OnceValue(func() prometheus.Observer { return m.seconds.WithLabelValues(rt.method, rt.path) })
	timed := rt.media != mediaEvents && rt.media != ""
	return func(status int, took time.Duration) {
		if status == rt.status {
			usual().Inc()
		} else {
			m.requests.WithLabelValues(rt.method, rt.path, strconv.Itoa(status)).Inc()
		}
		if timed {
			seconds().Observe(took.Seconds())
		}
	}
}

func (s *Server) metricsRoute() route {
	return stream("/metrics", "metrics", "Numbers for Prometheus", mediaText, func(s *Server, c *call) error {
		s.metrics.handler.ServeHTTP(&c.w, c.r)
		return nil
	}).action(auth.RunsRead)
}

// gaugeCollector lets Prometheus read Gauges. It describes nothing in advance:
// what is emitted may depend on the moment.
type gaugeCollector struct{ gauges Gauges }

func (gaugeCollector) Describe(chan<- *prometheus.Desc) {}

func (g gaugeCollector) Collect(out chan<- prometheus.Metric) {
	g.gauges.Gauges(func(name, help string, value float64, labels ...string) {
		var names, values []string
		for i := 0; i+1 < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		desc := prometheus.NewDesc(name, help, names, nil)
		metric, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, value, values...)
		if err != nil {
			metric = prometheus.NewInvalidMetric(desc, err)
		}
		out <- metric
	})
}
