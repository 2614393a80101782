package sqlite

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Rows are the answer of [Tx.Query]. Use it as a [sql.Rows]: Next, Scan, Err, Close.
type Rows struct {
	tx     *Tx
	rows   driver.Rows
	stmt   *stmt
	single bool // the statement is used once and closed with the rows
	dest   []driver.Value
	err    error
	closed bool
}

// Next moves to the next row. It is false at the end and on an error, and has then closed the rows.
func (r *Rows) Next() bool {
	if r.closed {
		return false
	}
	err := r.rows.Next(r.dest)
	if err == nil {
		return true
	}
	if !errors.Is(err, io.EOF) {
		r.err = r.tx.note(err)
	}
	r.err = errors.Join(r.err, r.Close())
	return false
}

// Scan copies the columns of the current row into *int64, *int, *float64, *bool, *string, *[]byte, *time.Time, *any or a
// [sql.Scanner]. NULL becomes the zero value.
func (r *Rows) Scan(dest ...any) error {
	if len(dest) != len(r.dest) {
		return fmt.Errorf("sqlite: scan %d columns into %d variables", len(r.dest), len(dest))
	}
	for i, d := range dest {
		if err := assign(d, r.dest[i]); err != nil {
			return fmt.Errorf("sqlite: scan column %s: %w", r.rows.Columns()[i], err)
		}
	}
	return nil
}

// Err is what ended Next, nil at a regular end.
func (r *Rows) Err() error { return r.err }

// Close ends the reading; it may be called twice.
func (r *Rows) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	if i := slices.Index(r.tx.rows, r); i >= 0 {
		r.tx.rows = slices.Delete(r.tx.rows, i, i+1)
	}
	err := r.rows.Close()
	if r.single {
		return errors.Join(err, r.stmt.Close())
	}
	r.stmt.busy = false
	return err
}

// Row is the answer of [Tx.QueryRow].
type Row struct {
	rows *Rows
	err  error
}

// Scan copies the first row and ends the reading. Without a row it returns [sql.ErrNoRows].
func (r *Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return errNoRows
	}
	return errors.Join(r.rows.Scan(dest...), r.rows.Close())
}

func assign(dest any, v driver.Value) error {
	switch d := dest.(type) {
	case *any:
		*d = v
		return nil
	case *int64:
		if v == nil {
			*d = 0
			return nil
		}
		if n, ok := v.(int64); ok {
			*d = n
			return nil
		}
	case *int:
		if v == nil {
			*d = 0
			return nil
		}
		if n, ok := v.(int64); ok {
			*d = int(n)
			return nil
		}
	case *bool:
		switch n := v.(type) {
		case nil:
			*d = false
			return nil
		case int64:
			*d = n != 0
			return nil
		case bool:
			*d = n
			return nil
		}
	case *float64:
		switch n := v.(type) {
		case nil:
			*d = 0
			return nil
		case float64:
			*d = n
			return nil
		case int64:
			*d = float64(n)
			return nil
		}
	case *string:
		switch s := v.(type) {
		case nil:
			*d = ""
			return nil
		case string:
			*d = s
			return nil
		case []byte:
			*d = string(s)
			return nil
		}
	case *[]byte:
		switch s := v.(type) {
		case nil:
			*d = nil
			return nil
		case []byte:
			*d = s // the driver has copied it out of SQLite's memory
			return nil
		case string:
			*d = []byte(s)
			return nil
		}
	case *time.Time:
		switch t := v.(type) {
		case nil:
			*d = time.Time{}
			return nil
		case time.Time:
			*d = t
			return nil
		}
	case sql.Scanner:
		return d.Scan(v)
	}
	return fmt.Errorf("cannot store %T in %T", v, dest)
}
