package api

import (
	"errors"
	"net/http"

	"github.com/waymark-net/waymark/internal/filter"
)

// completePath is where a filter that is being written is completed.
const completePath = "/api/v1/complete"

// Completion is what may follow a filter that is being written.
type Completion struct {
	Error *FilterError `json:"error,omitempty"` // absent: it is a filter
	Words []FilterWord `json:"words"`
	// Field is the one whose values may follow, besides the words.
	Field string `json:"field,omitempty"`
}

// FilterError is what is wrong with the filter, and where: in its bytes [Begin, End).
type FilterError struct {
	What  string `json:"what"`
	Begin int    `json:"begin"`
	End   int    `json:"end"`
}

// FilterWord is a word that may follow.
type FilterWord struct {
	Text string `json:"text"`
	Doc  string `json:"doc,omitempty"`
}

// complete reads a filter as far as it is written.
func (s *Server) complete(w http.ResponseWriter, r *http.Request) error {
	for name, values := range r.URL.Query() {
		if name != "filter" || len(values) != 1 {
			return refuse("parameter "+name+" is not known, or given more than once", "give filter, once")
		}
	}
	s.writeJSON(w, completion(r.URL.Query().Get("filter")))
	return nil
}

func completion(text string) Completion {
	out := Completion{Words: []FilterWord{}}
	_, err := filter.Parse(text)
	var e *filter.Error
	if errors.As(err, &e) {
		out.Error = &FilterError{e.What, e.Pos, e.End}
	} else if err != nil {
		out.Error = &FilterError{err.Error(), 0, len(text)}
	}
	words, field := filter.Next(text)
	for _, word := range words {
		out.Words = append(out.Words, FilterWord(word))
	}
	out.Field = field
	return out
}
