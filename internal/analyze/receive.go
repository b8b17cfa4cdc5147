package analyze

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/store/disk"
)

// Bounds of what is worked on at a time. A host has one request in each.
const (
	maxBodies = 64              // requests that are read
	waitBusy  = time.Second     // after which a host that is too early may come again
	waitWork  = 5 * time.Second // for a place among those that are read, or worked on
)

// sender is what a request says of an agent.
type sender struct {
	version, address string
	clock            time.Time
	lost             uint64
	sampling         uint32
	trip             time.Duration
}

func senderOf(r *http.Request, now time.Time) *sender {
	s := &sender{version: r.Header.Get(frame.AgentHeader), address: r.RemoteAddr, clock: now}
	if n, err := strconv.ParseInt(r.Header.Get(frame.NowHeader), 10, 64); err == nil {
		s.clock = time.Unix(0, n)
	}
	if n, err := strconv.ParseInt(r.Header.Get(frame.TripHeader), 10, 64); err == nil {
		s.trip = time.Duration(n)
	}
	if n, err := strconv.ParseUint(r.Header.Get(frame.SamplingHeader), 10, 32); err == nil {
		s.sampling = uint32(n)
	}
	s.lost, _ = strconv.ParseUint(r.Header.Get(frame.LostHeader), 10, 64)
	if len(s.version) > 64 {
		s.version = s.version[:64]
	}
	return s
}

// admit finds which host sends; nil: it was answered that it may not.
func (a *Analyzer) admit(w http.ResponseWriter, r *http.Request) *host {
	now := a.clock()
	name, leaf, refused := a.identify(r)
	if refused != nil {
		a.answerRefusal(w, r, refused, "")
		return nil
	}
	if v := r.Header.Get(frame.VersionHeader); r.Method != http.MethodPost || v != frame.Version {
		a.answerRefusal(w, r, refuse(refusedVersion, http.StatusBadRequest,
			fmt.Sprintf("requests of version %q, and this analyzer takes version %s", v, frame.Version), "upgrade the older one of both"), name)
		return nil
	}
	h, refused := a.host(name)
	if refused != nil {
		a.answerRefusal(w, r, refused, name)
		return nil
	}
	if h.isDevice() {
		a.answerRefusal(w, r, refuse(refusedName, http.StatusForbidden, "a device without an agent sends, or sent, as "+name, "have the host join under another name; or name the device otherwise in analyze.devices, and move hosts/"+name+" below analyze.path away"), name)
		return nil
	}
	h.met(senderOf(r, now), leaf, now)
	return h
}

// push takes frames of an agent.
func (a *Analyzer) push(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	h := a.admit(w, r)
	if h == nil {
		return
	}
	kept := 0
	refused, wait := a.receive(r, h, frame.Most, func(body []byte) (refused *refusal) {
		kept, refused = a.keep(h, body)
		h.tend(a.clock())
		return refused
	})
	if refused == nil {
		h.mu.Lock()
		h.isNot("refused")
		has := h.saidSum
		h.mu.Unlock()
		writeJSON(w, http.StatusOK, frame.Answer{Kept: kept, Topology: &has, Took: time.Since(began)})
		return
	}
	h.refused(refused)
	answerLater(w, refused, wait, kept)
}

// answerLater answers a host that has to send again.
func answerLater(w http.ResponseWriter, refused *refusal, wait time.Duration, kept int) {
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	}
	if refused.reason == frame.ReasonOther || refused.reason == frame.ReasonDamaged {
		w.Header().Set(frame.ReasonHeader, refused.reason)
	}
	writeJSON(w, refused.Status, struct {
		frame.Answer
		What string `json:"what"`
		How  string `json:"how,omitempty"`
	}{frame.Answer{Kept: kept}, refused.What, refused.How})
}

// Reasons why frames of a known host are not taken now.
const (
	refusedBusy  = "host_busy"     // one request of a host at a time
	refusedRate  = "host_rate"     // analyze.rate
	refusedWork  = "analyzer_busy" // all places are taken
	refusedDisk  = "not_kept"      // the disk
	refusedSize  = "too_large"     //
	refusedBytes = "unreadable"    // of a newer schema, or of no agent
)

// receive reads what a host sends, and uses it while the host can send nothing else.
func (a *Analyzer) receive(r *http.Request, h *host, most int64, use func(body []byte) *refusal) (refused *refusal, wait time.Duration) {
	if !h.keeping.TryLock() {
		return refuse(refusedBusy, http.StatusTooManyRequests, "another request of this host is at work", "one at a time; have each host join under a name of its own"), waitBusy
	}
	defer h.keeping.Unlock()
	n := r.ContentLength
	if n < 0 || n > most {
		reason, remedy := refusedSize, "shorten flow.scan_interval"
		if most == frame.MostTopology {
			reason, remedy = refusedTopology, "set topology.neighbours of the host to less"
		}
		return refuse(reason, http.StatusRequestEntityTooLarge, fmt.Sprintf("a request of %d bytes", n), fmt.Sprintf("at most %d are taken, with Content-Length: %s", most, remedy)), 0
	}
	h.mu.Lock()
	wait = h.bucket.take(float64(n), float64(a.cfg.Rate), time.Now())
	h.mu.Unlock()
	if wait > 0 {
		return refuse(refusedRate, http.StatusTooManyRequests, fmt.Sprintf("more than %d bytes in a second", a.cfg.Rate), "it is sent later; set analyze.rate to more, if the host has so many flows"), wait
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitWork)
	defer cancel()
	if !acquire(ctx, a.bodies) {
		return refuse(refusedWork, http.StatusServiceUnavailable, "the analyzer is busy", "it is sent later"), waitBusy
	}
	defer func() { <-a.bodies }()
	body := make([]byte, n)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return refuse(refusedBytes, http.StatusBadRequest, "read the request: "+err.Error(), ""), 0
	}
	if !acquire(ctx, a.work) {
		return refuse(refusedWork, http.StatusServiceUnavailable, "the analyzer is busy", "it is sent later"), waitBusy
	}
	defer func() { <-a.work }()
	return use(body), 0
}

func acquire(ctx context.Context, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// keep keeps frames; h.keeping is held. What it returns as kept is on disk.
func (a *Analyzer) keep(h *host, body []byte) (kept int, refused *refusal) {
	for len(body) > 0 && refused == nil {
		var f frame.Frame
		var err error
		if f, body, err = frame.Next(body); err != nil {
			refused = refuse(frame.ReasonDamaged, http.StatusBadRequest, err.Error(), "it is sent again")
			break
		}
		if refused = a.keepOne(h, &f); refused == nil {
			kept++
		}
	}
	if err := h.disk.Sync(); err != nil {
		return 0, notKept(err)
	}
	return kept, refused
}

func notKept(err error) *refusal {
	return refuse(refusedDisk, http.StatusInsufficientStorage, "keep an interval: "+err.Error(), remedyOf(err))
}

func (a *Analyzer) keepOne(h *host, f *frame.Frame) *refusal {
	var decoder store.Decoder // each frame is readable alone
	e, err := decoder.Decode(f.Payload)
	if err != nil {
		return refuse(refusedBytes, http.StatusUnprocessableEntity, err.Error(), "upgrade the analyzer before its agents; the agent keeps the interval until then")
	}
	before := h.disk.Received(f.Boot)
	what, err := h.disk.Keep(&e, disk.Identity{Boot: f.Boot, Sequence: f.Sequence, Sum: f.Sum})
	switch {
	case err != nil:
		return notKept(err)
	case what == disk.KeptKnown:
		h.mu.Lock()
		h.state.Repeated++
		h.mu.Unlock()
		return nil
	case what == disk.KeptOther:
		h.mu.Lock()
		h.state.Restored++
		h.mu.Unlock()
		a.log.Warn("an agent goes on from an earlier state, as after a snapshot was restored: it has to go on as another run", "host", h.name, "sequence", f.Sequence)
		return refuse(frame.ReasonOther, http.StatusConflict, fmt.Sprintf("interval %d of this run is another one", f.Sequence), "the agent goes on as another run")
	}
	if f.Sequence > before+1 {
		h.missed(f.Sequence - before - 1)
		a.log.Warn("intervals were lost at the agent, before they were sent", "host", h.name, "intervals", f.Sequence-before-1,
			"remedy", "see waymark status there; if its queue was full, set export.analyzer.size to more")
	}
	if h.note(f.Boot, e.Head(), frame.Head+len(f.Payload)) {
		a.warnOnce("twin "+h.name, "two agents send under one name: have one of the hosts join under another", "host", h.name)
	}
	a.live.add(h.name, e)
	return nil
}

// answerRefusal answers somebody who is not let in, counts it and logs the first of each kind and address.
func (a *Analyzer) answerRefusal(w http.ResponseWriter, r *http.Request, refused *refusal, name string) {
	a.count(refused.reason)
	a.warnOnce(refused.reason+" "+name, "an agent is refused", "reason", refused.reason, "host", name, "from", r.RemoteAddr, "what", refused.What, "remedy", refused.How)
	if refused.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "10")
	}
	refused.Answer(w)
}

// refused counts what a known host was refused.
func (h *host) refused(why *refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state.Refused == nil {
		h.state.Refused = map[string]uint64{}
	}
	h.state.Refused[why.reason]++
	switch why.reason {
	case refusedDisk, refusedBytes, refusedSize:
		h.is("refused", why.Error.Error())
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the agent may be gone; it asks again
}
