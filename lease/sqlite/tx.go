package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/mattn/go-sqlite3"
)

// Tx is the writer's transaction as one operation of a group sees it. It is valid only inside the function that was
// given it and only on that goroutine. Statements are prepared once per text and kept, so texts should be constants.
//
// The transaction begins with the first Exec; a function that only reads costs no commit.
type Tx struct {
	conn  *sqlite3.SQLiteConn
	stmts map[string]*stmt
	open  bool // inside a group
	begun bool // BEGIN IMMEDIATE has been run
	depth int  // savepoints around the current statement
	err   error
	args  []driver.NamedValue // reused between statements
	rows  []*Rows             // not closed yet
}

type stmt struct {
	*sqlite3.SQLiteStmt
	busy bool // a Rows is reading from it
}

// Result of a statement that changed rows.
type Result struct {
	// LastInsertID is the rowid of the last row inserted on this connection.
	LastInsertID int64
	// RowsAffected counts the rows that this statement inserted, updated or deleted.
	RowsAffected int64
}

var (
	errNotOpen = errors.New("sqlite: transaction used outside its function")
	errNoRows  = sql.ErrNoRows
)

// Exec runs one statement. Arguments are nil, bool, int, int64, float64, string, []byte, time.Time or a driver.Valuer.
func (tx *Tx) Exec(query string, args ...any) (Result, error) {
	if err := tx.begin(); err != nil {
		return Result{}, err
	}
	s, named, err := tx.bind(query, args)
	if err != nil {
		return Result{}, tx.note(err)
	}
	res, err := s.ExecContext(context.Background(), named)
	if s.busy { // a second copy of a statement that is being read
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		return Result{}, tx.note(err)
	}
	id, _ := res.LastInsertId() // the driver's implementation has no error to return
	n, _ := res.RowsAffected()
	return Result{LastInsertID: id, RowsAffected: n}, nil
}

// Query runs a statement that answers rows. What the function leaves open is closed when it returns.
func (tx *Tx) Query(query string, args ...any) (*Rows, error) {
	if !tx.open {
		return nil, errNotOpen
	}
	if tx.err != nil {
		return nil, tx.err
	}
	s, named, err := tx.bind(query, args)
	if err != nil {
		return nil, tx.note(err)
	}
	rows, err := s.QueryContext(context.Background(), named)
	if err != nil {
		if s.busy {
			err = errors.Join(err, s.Close())
		}
		return nil, tx.note(err)
	}
	r := &Rows{tx: tx, rows: rows, stmt: s, single: s.busy}
	s.busy = true
	r.dest = make([]driver.Value, len(rows.Columns()))
	tx.rows = append(tx.rows, r)
	return r, nil
}

// QueryRow runs a statement of which the first row is wanted; its Scan returns [sql.ErrNoRows] if there is none.
func (tx *Tx) QueryRow(query string, args ...any) *Row {
	rows, err := tx.Query(query, args...)
	return &Row{rows: rows, err: err}
}

// Nested runs fn inside a savepoint: if it fails, everything that it changed is undone, the transaction goes on, and the
// error comes back. An error that ends the whole transaction (a full disk) cannot be contained, and fails the group.
func (tx *Tx) Nested(fn func(*Tx) error) error {
	if err := tx.begin(); err != nil {
		return err
	}
	name := savepointName(tx.depth)
	if err := tx.run("SAVEPOINT " + name); err != nil {
		return err
	}
	reading := len(tx.rows)
	tx.depth++
	err := tx.call(fn)
	tx.depth--
	tx.closeRows(reading)
	if err == nil {
		err = tx.err
	}
	if err == nil {
		return tx.run("RELEASE " + name)
	}
	if tx.conn.AutoCommit() { // SQLite has rolled all of it back by itself
		tx.err = fmt.Errorf("transaction ended: %w", cmp.Or(tx.err, err))
		return err
	}
	if fatal(tx.err) { // of a statement of this transaction; an error that fn brings from elsewhere spoils nothing here
		return err
	}
	tx.err = nil
	if rerr := tx.run("ROLLBACK TO " + name); rerr != nil {
		return errors.Join(err, rerr)
	}
	if rerr := tx.run("RELEASE " + name); rerr != nil {
		return errors.Join(err, rerr)
	}
	return err
}

// PanicError is a panic of a caller's function. It undoes and fails that function's operation only: a coordinator must not
// go down for one bad request.
type PanicError struct {
	// Value is what the function panicked with, Stack where.
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("sqlite: function panicked: %v\n%s", e.Value, e.Stack)
}

func (tx *Tx) call(fn func(*Tx) error) (err error) {
	depth := tx.depth
	defer func() {
		if v := recover(); v != nil {
			tx.depth = depth
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn(tx)
}

// closeRows closes the rows beyond the first n that a function has left open: an open statement would hold an old snapshot,
// behind which the write-ahead log grows.
func (tx *Tx) closeRows(n int) {
	for len(tx.rows) > n {
		_ = tx.rows[len(tx.rows)-1].Close() // a failed reset repeats the error of the statement, which was returned then
	}
}

func savepointName(depth int) string {
	// Constant texts, so that the statements stay prepared.
	switch depth {
	case 0:
		return "op"
	case 1:
		return "inner"
	}
	return fmt.Sprintf("inner%d", depth)
}

// begin starts the transaction if it has not been started.
func (tx *Tx) begin() error {
	if !tx.open {
		return errNotOpen
	}
	if tx.err != nil {
		return tx.err
	}
	if tx.begun {
		return nil
	}
	if err := tx.run("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	tx.begun = true
	return nil
}

// run executes a statement that controls the transaction.
func (tx *Tx) run(query string) error {
	s, named, err := tx.bind(query, nil)
	if err == nil {
		_, err = s.ExecContext(context.Background(), named)
	}
	if err != nil {
		tx.err = fmt.Errorf("%s: %w", query, err)
		return tx.err
	}
	return nil
}

// note remembers an error that spoils the group. Outside a savepoint every failed statement does: the operation may have
// written before it. Inside one, Nested decides.
func (tx *Tx) note(err error) error {
	if tx.begun && (tx.depth == 0 || fatal(err) || tx.conn.AutoCommit()) {
		tx.err = err
	}
	return err
}

// fatal reports errors after which the connection's transaction is not to be trusted.
func fatal(err error) bool {
	var serr sqlite3.Error
	if !errors.As(err, &serr) {
		return false
	}
	switch serr.Code {
	case sqlite3.ErrFull, sqlite3.ErrIoErr, sqlite3.ErrNomem, sqlite3.ErrCorrupt, sqlite3.ErrNotADB, sqlite3.ErrReadonly,
		sqlite3.ErrCantOpen, sqlite3.ErrBusy, sqlite3.ErrInterrupt, sqlite3.ErrProtocol:
		return true
	}
	return false
}

func (tx *Tx) bind(query string, args []any) (*stmt, []driver.NamedValue, error) {
	s, err := tx.prepare(query)
	if err != nil {
		return nil, nil, err
	}
	named := tx.args[:0]
	for i, a := range args {
		v, err := toValue(a)
		if err != nil {
			return nil, nil, fmt.Errorf("argument %d: %w", i+1, err)
		}
		named = append(named, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	tx.args = named[:0]
	return s, named, nil
}

func toValue(a any) (driver.Value, error) {
	switch v := a.(type) {
	case nil, int64, float64, bool, string, []byte, time.Time:
		return v, nil
	case int:
		return int64(v), nil
	}
	return driver.DefaultParameterConverter.ConvertValue(a)
}

// maxStatements bounds the prepared statements kept; beyond it somebody builds texts, and they are prepared each time.
const maxStatements = 512

func (tx *Tx) prepare(query string) (*stmt, error) {
	s := tx.stmts[query]
	if s != nil && !s.busy {
		return s, nil
	}
	prepared, err := tx.conn.Prepare(query)
	if err != nil {
		return nil, fmt.Errorf("prepare %q: %w", query, err)
	}
	fresh := &stmt{SQLiteStmt: prepared.(*sqlite3.SQLiteStmt)}
	if s != nil || len(tx.stmts) >= maxStatements {
		fresh.busy = true // never kept; its user closes it
		return fresh, nil
	}
	tx.stmts[query] = fresh
	return fresh, nil
}

func (tx *Tx) finalize() {
	for _, s := range tx.stmts {
		_ = s.Close() // the connection is closed next, and reports what is wrong
	}
	tx.stmts = nil
}

// Err is what has spoiled the group so far, nil if it can still be committed.
func (tx *Tx) Err() error { return tx.err }
