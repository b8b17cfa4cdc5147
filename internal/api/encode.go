package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// pieceSize is how much is written at once.
const pieceSize = 64 << 10

// head is the JSON of an answer up to its rows.
func head(a query.Answer, o flow.Origin) ([]byte, error) {
	a.Rows = nil
	whole, err := json.Marshal(NewAnswer(a, o))
	return bytes.TrimSuffix(whole, []byte("]}")), err // Rows is the last field, and empty
}

// tail ends what head began, and the line.
var tail = []byte("]}\n")

// appendRows adds the JSON of rows from one on, until b is as long as a piece;
// it returns the first row that is left.
func appendRows(b []byte, fields []RowField, o *flow.Origin, rows []query.Row, from, most int) ([]byte, int) {
	for ; from < len(rows) && len(b) < most; from++ {
		if from > 0 {
			b = append(b, ',')
		}
		b = appendRow(b, fields, o, &rows[from])
	}
	return b, from
}

// writeAnswer writes an answer piece by piece: its JSON is never in memory whole.
func writeAnswer(w http.ResponseWriter, a query.Answer, o flow.Origin, piece time.Duration) error {
	b, err := head(a, o)
	if err != nil {
		return err
	}
	p := newPieces(w, piece, writeTimeout)
	fields := RowFields(a.By, a.Step)
	for next := 0; next < len(a.Rows); b = b[:0] {
		b, next = appendRows(b, fields, &o, a.Rows, next, pieceSize)
		if err := p.write(b); err != nil {
			return err
		}
	}
	return p.write(append(b, tail...))
}

// pieces writes to a reader who has to take each piece in time, and all of them.
type pieces struct {
	w       http.ResponseWriter
	control *http.ResponseController
	each    time.Duration // for a piece
	end     time.Time     // zero: none
}

func newPieces(w http.ResponseWriter, each, whole time.Duration) *pieces {
	p := &pieces{w: w, control: http.NewResponseController(w), each: each}
	if whole > 0 {
		p.end = time.Now().Add(whole)
	}
	return p
}

func (p *pieces) write(b []byte) error {
	for len(b) > 0 {
		until := time.Now().Add(p.each)
		if !p.end.IsZero() && p.end.Before(until) {
			until = p.end
		}
		if err := p.control.SetWriteDeadline(until); err != nil {
			return err
		}
		n, err := p.w.Write(b[:min(len(b), pieceSize)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
