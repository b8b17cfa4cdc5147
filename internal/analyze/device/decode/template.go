package decode

import (
	"bytes"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// Bounds of a session.
const (
	mostTemplates = 1024
	mostFields    = 16384 // of all templates
	mostInOne     = 512   // fields of a template
	mostWaiting   = 128 << 10
	waitingBytes  = 192              // of a set, besides its records
	waitTemplate  = 60 * time.Second // routers send them once a minute, or more often
	mostSamplers  = 256
)

// Session is what is known of one sender of one observation domain.
type Session struct {
	templates map[uint16]*template
	fields    int
	waiting   []waiting      // oldest first
	awaited   map[uint16]int // how many of these wait for a template
	bytes     int            // of them
	samplers  map[uint64]float64
	usual     float64           // rate without a sampler's id; 0: not reported
	boot      int64             // of the device in ms since the epoch, as its options say
	drops     map[uint64]uint32 // that sFlow reported, by source
	fixed     float64

	record record     // that is read
	delta  flow.Delta // of it
}

// NewSession knows nothing. A sampling rate other than 0 is used for all records, whatever the device reports.
func NewSession(sampling uint32) *Session {
	return &Session{templates: map[uint16]*template{}, awaited: map[uint16]int{}, samplers: map[uint64]float64{}, drops: map[uint64]uint32{}, fixed: float64(sampling)}
}

// template says what the records of a set have.
type template struct {
	fields  []field
	least   int // bytes of a record
	options bool
}

// field is one in a template.
type field struct {
	set    setter // nil: nobody asks for it
	length uint16
}

const variable = 0xffff

// waiting is a set of records whose template is not known yet.
type waiting struct {
	id    uint16
	head  Header
	body  []byte
	since time.Time
}

// Sets that are no records.
const (
	templates9      = 0
	options9        = 1
	templatesIPFIX  = 2
	optionsIPFIX    = 3
	firstRecordSet  = 256
	enterpriseBit   = 1 << 15
	reversePEN      = 29305 // RFC 5103
	allTemplates    = templatesIPFIX
	allOptions      = optionsIPFIX
	scopeOfV9       = 1 << 16 // scopes of NetFlow 9 have numbers of their own
	setHead         = 4
	fieldBytes      = 4
	enterpriseBytes = 4
)

// sets reads the sets of NetFlow 9 and IPFIX.
func (s *Session) sets(h *Header, now time.Time, out Output) (records uint32, known bool) {
	known = true
	for b := h.body; len(b) >= setHead; {
		id, length := be.Uint16(b), int(be.Uint16(b[2:]))
		if length < setHead || length > len(b) {
			out.Count(Malformed, 1)
			return records, false
		}
		body := b[setHead:length]
		b = b[length:]
		right := true
		switch {
		case id >= firstRecordSet:
			t := s.templates[id]
			if t == nil {
				s.wait(id, h, body, now, out)
				known = false
				continue
			}
			var n uint32
			n, right = s.records(t, h, body, out)
			records += n
		case h.Protocol == NetFlow9 && id == templates9, h.Protocol == IPFIX && id == templatesIPFIX:
			right = s.readTemplates(h, body, false, out)
		case h.Protocol == NetFlow9 && id == options9, h.Protocol == IPFIX && id == optionsIPFIX:
			right = s.readTemplates(h, body, true, out)
		}
		if !right {
			out.Count(Malformed, 1)
			return records, false
		}
	}
	return records, known
}

// wait keeps a set until its template comes.
func (s *Session) wait(id uint16, h *Header, body []byte, now time.Time, out Output) {
	if len(body) > mostWaiting {
		out.Count(NoTemplate, 1)
		return
	}
	for s.bytes+len(body) > mostWaiting {
		s.giveUp(out)
	}
	head := *h
	head.body = nil
	s.waiting = append(s.waiting, waiting{id, head, bytes.Clone(body), now})
	s.bytes += len(body) + waitingBytes
	s.awaited[id]++
}

func (s *Session) giveUp(out Output) {
	out.Count(NoTemplate, 1)
	s.forget(&s.waiting[0])
	s.waiting = s.waiting[1:]
}

func (s *Session) forget(w *waiting) {
	s.bytes -= len(w.body) + waitingBytes
	if s.awaited[w.id]--; s.awaited[w.id] == 0 {
		delete(s.awaited, w.id)
	}
}

// Tend gives up what has waited for too long.
func (s *Session) Tend(now time.Time, out Output) {
	for len(s.waiting) > 0 && now.Sub(s.waiting[0].since) > waitTemplate {
		s.giveUp(out)
	}
}

// End gives up everything that waits.
func (s *Session) End(out Output) {
	for len(s.waiting) > 0 {
		s.giveUp(out)
	}
}

// Waiting is how many sets wait for a template.
func (s *Session) Waiting() int { return len(s.waiting) }

// arrived reads what waited for a template.
func (s *Session) arrived(id uint16, out Output) {
	if s.awaited[id] == 0 {
		return // a datagram may have thousands of templates
	}
	list := s.waiting
	s.waiting = nil
	for i := range list {
		if list[i].id != id {
			s.waiting = append(s.waiting, list[i])
			continue
		}
		s.forget(&list[i])
		if _, right := s.records(s.templates[id], &list[i].head, list[i].body, out); !right {
			out.Count(Malformed, 1)
		}
	}
}

// readTemplates reads a set of templates; false: it is malformed.
func (s *Session) readTemplates(h *Header, b []byte, options bool, out Output) bool {
	for len(b) >= 4 {
		id, count, scopes := be.Uint16(b), int(be.Uint16(b[2:])), 0
		b = b[4:]
		if id < firstRecordSet && (id != 0 || count != 0) && !(h.Protocol == IPFIX && count == 0) {
			return false
		}
		switch {
		case h.Protocol == IPFIX && count == 0: // withdrawn (RFC 7011, 8.1)
			s.withdraw(id)
			continue
		case id == 0: // padding
			return true
		case options && len(b) < 2:
			return false
		case options && h.Protocol == NetFlow9: // lengths in bytes
			if count%fieldBytes != 0 || be.Uint16(b)%fieldBytes != 0 {
				return false
			}
			scopes = count / fieldBytes
			count = scopes + int(be.Uint16(b))/fieldBytes
			b = b[2:]
		case options:
			scopes = int(be.Uint16(b))
			b = b[2:]
		}
		t, rest, right := readTemplate(h.Protocol, b, count, scopes)
		if !right {
			return false
		}
		t.options = options
		b = rest
		if !s.learn(id, t, out) {
			continue
		}
		s.arrived(id, out)
	}
	return true
}

func readTemplate(p Protocol, b []byte, count, scopes int) (t *template, rest []byte, right bool) {
	if count == 0 || count > len(b)/fieldBytes || scopes > count {
		return nil, nil, false
	}
	t = &template{fields: make([]field, 0, count)}
	for i := range count {
		if len(b) < fieldBytes {
			return nil, nil, false
		}
		id, length, enterprise := uint32(be.Uint16(b)), be.Uint16(b[2:]), uint32(0)
		b = b[fieldBytes:]
		if p == IPFIX && id&enterpriseBit != 0 {
			if len(b) < enterpriseBytes {
				return nil, nil, false
			}
			id &^= enterpriseBit
			enterprise = be.Uint32(b)
			b = b[enterpriseBytes:]
		}
		if p == NetFlow9 && i < scopes {
			id |= scopeOfV9
		}
		if length == 0 { // nothing to read
			continue
		}
		f := field{set: setterOf(enterprise, id), length: length}
		if length == variable && p == NetFlow9 {
			return nil, nil, false
		}
		if length == variable {
			t.least++
		} else {
			t.least += int(length)
		}
		t.fields = append(t.fields, f)
	}
	return t, b, t.least > 0 // records without bytes would never end
}

func (s *Session) withdraw(id uint16) {
	if t := s.templates[id]; t != nil {
		s.fields -= len(t.fields)
		delete(s.templates, id)
	}
	if (id != allTemplates && id != allOptions) || len(s.templates) == 0 {
		return
	}
	kept := map[uint16]*template{}
	for known, t := range s.templates {
		if t.options != (id == allOptions) {
			kept[known] = t
		} else {
			s.fields -= len(t.fields)
		}
	}
	if len(kept) < len(s.templates) {
		s.templates = kept
	}
}

// learn keeps a template, within bounds.
func (s *Session) learn(id uint16, t *template, out Output) bool {
	if old := s.templates[id]; old != nil {
		s.fields -= len(old.fields)
		delete(s.templates, id)
	}
	if len(s.templates) >= mostTemplates || s.fields+len(t.fields) > mostFields || len(t.fields) > mostInOne {
		out.Count(Templates, 1)
		return false
	}
	s.templates[id] = t
	s.fields += len(t.fields)
	return true
}

// records reads a set of records; right is false if it is malformed.
func (s *Session) records(t *template, h *Header, b []byte, out Output) (n uint32, right bool) {
	for len(b) >= t.least {
		r := &s.record
		*r = record{}
		for i := range t.fields {
			f := &t.fields[i]
			length := int(f.length)
			if f.length == variable {
				if length, b, right = variableLength(b); !right {
					return n, false
				}
			}
			if length > len(b) {
				return n, false
			}
			if f.set != nil {
				f.set(r, b[:length])
			}
			b = b[length:]
		}
		n++
		if t.options {
			s.option(r, out)
			continue
		}
		s.finish(r, h, out)
	}
	return n, true // what is left is padding
}

func variableLength(b []byte) (n int, rest []byte, right bool) {
	if len(b) < 1 {
		return 0, nil, false
	}
	if b[0] < 255 {
		return int(b[0]), b[1:], true
	}
	if len(b) < 3 {
		return 0, nil, false
	}
	return int(be.Uint16(b[1:])), b[3:], true
}
