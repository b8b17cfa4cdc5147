// Package producer writes intervals to Kafka, each once. Input: configurations and intervals, from a pipe. Output: records in a topic, and
// answers. Caller: waymark-kafka.
//
// An interval is one transaction, which also commits the interval's identity, as an offset of a group that has no members. What became
// of a transaction whose end was not seen is therefore known: a new session ends it, and reads which interval was the last one.
package producer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/export/kafka/pipe"
)

// Limits of an interval, and of the transaction at the broker, which aborts it then.
const (
	intervalTime    = 45 * time.Second
	transactionTime = time.Minute
)

// Producer sends intervals.
type Producer struct {
	cfg     pipe.Configuration
	session *session // nil: none
	batch   int32    // bytes of a batch at most
	sockets *sockets
	reach   reach
}

// The sizes of batches: a broker may take less than clients send by default.
const (
	largestBatch  = 1 << 20
	smallestBatch = 4 << 10
)

// New makes a producer that gets sockets from a descriptor; see pipe.SocketFile.
func New(descriptor int) *Producer {
	return &Producer{batch: largestBatch, sockets: newSockets(descriptor)}
}

// request is a message of the agent, or the end of the pipe.
type request struct {
	kind byte
	b    []byte
	err  error
}

// Run answers until the pipe is closed. An agent that is gone is noticed while an interval is sent: another one may begin.
func (p *Producer) Run(in io.Reader, out io.Writer) error {
	defer p.close()
	ctx, cancel := context.WithCancel(context.Background())
	requests := make(chan request, 1)
	go func() {
		defer cancel()
		for r := (request{}); r.err == nil; {
			r.kind, r.b, r.err = pipe.Read(in)
			requests <- r
		}
	}()
	for r := range requests {
		if errors.Is(r.err, io.EOF) {
			return nil
		}
		if r.err != nil {
			return fmt.Errorf("read from the agent: %w", r.err)
		}
		var err error
		switch r.kind {
		case pipe.Configure:
			err = p.configure(r.b)
		case pipe.Interval:
			err = pipe.WriteJSON(out, pipe.Answered, p.answer(ctx, r.b))
		default:
			err = fmt.Errorf("a message of unknown kind %q: install waymark-kafka of the same release as waymark", r.kind)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Producer) configure(b []byte) error {
	next, err := decode(b)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(next, p.cfg) {
		p.close()
		p.cfg, p.batch = next, largestBatch
	}
	return nil
}

// close ends the session: what it does not know the end of is found out by the next one.
func (p *Producer) close() {
	if p.session != nil {
		p.session.end()
		p.session.client.Close()
		p.session = nil
	}
}

// answer sends an interval.
func (p *Producer) answer(ctx context.Context, b []byte) pipe.Answer {
	f, rest, err := frame.Next(b)
	if err != nil || len(rest) > 0 {
		return pipe.Answer{Error: "the interval was damaged between waymark and waymark-kafka"}
	}
	a := pipe.Answer{Run: f.Boot, Number: f.Sequence}
	err = p.send(ctx, &f)
	for tooLarge(err) && p.batch > smallestBatch {
		p.batch /= 4
		err = p.send(ctx, &f)
	}
	switch {
	case tooLarge(err):
		a.Refused = "too_large"
	case errors.Is(err, errDamaged):
		a.Refused = "rejected"
	}
	if err != nil {
		a.Error = strings.ReplaceAll(explain(err, &p.cfg).Error(), "\n", "; ")
	}
	return a
}

// send sends an interval in a session, which ends with any error.
func (p *Producer) send(agent context.Context, f *frame.Frame) error {
	limited, cancel := context.WithTimeout(agent, intervalTime)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(limited)
	defer giveUp(nil)
	p.reach.within(giveUp)
	err := p.open(ctx, agent)
	if err == nil {
		err = p.session.deliver(ctx, f)
	}
	if err != nil {
		p.close()
	}
	return p.reach.why(ctx, err)
}

// open begins a session, unless there is one. Its connections end with the agent at the latest: where the client waits for the first
// answer of a broker, it looks at nothing else.
func (p *Producer) open(ctx, agent context.Context) (err error) {
	if p.session != nil {
		return nil
	}
	life, end := context.WithCancel(agent)
	client, err := p.newClient(life)
	if err != nil {
		end()
		return err
	}
	p.session = &session{cfg: &p.cfg, client: client, end: end}
	return p.session.begin(ctx)
}
