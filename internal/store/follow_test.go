package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

func TestFollow(t *testing.T) {
	s := New(Config{History: 4})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fill(s, 0, 1, record(1, 1, 1)) // ended before: not reported

	answers, held := make(chan query.Answer), make(chan struct{})
	done := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		close(started)
		done <- follow(ctx, s, query.Plan{Since: at(1000)}, func(a query.Answer) error {
			answers <- a
			<-held
			return nil
		})
	}()
	<-started
	// Until the follower waits, what ends counts as before it came.
	var first query.Answer
	for n := 1; ; n++ {
		fill(s, n, n+1, record(1, 1, 2))
		select {
		case first = <-answers:
		case <-time.After(10 * time.Millisecond):
			continue
		}
		break
	}
	if first.Total.Bytes != 2 || first.Intervals != 1 {
		t.Fatalf("%+v", first)
	}
	// While it is held, more end than are kept.
	for n := range 10 {
		fill(s, 100+n, 101+n, record(1, 1, uint64(100+n)))
	}
	close(held)
	var got []query.Answer
	for range 4 {
		got = append(got, <-answers)
	}
	if got[0].Missed == 0 || got[1].Missed != 0 || got[3].Total.Bytes != 109 {
		t.Errorf("missed %d, then %d; last has %d bytes", got[0].Missed, got[1].Missed, got[3].Total.Bytes)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Follow = %v", err)
	}
}

func TestFollowEndsWithItsReader(t *testing.T) {
	s := New(Default())
	gone := errors.New("gone")
	done := make(chan error)
	go func() { done <- follow(t.Context(), s, query.Plan{}, func(query.Answer) error { return gone }) }()
	for {
		fill(s, 0, 1)
		select {
		case err := <-done:
			if !errors.Is(err, gone) {
				t.Errorf("Follow = %v", err)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	s := New(Config{History: 1000})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 50 {
				a, err := s.Query(context.Background(), query.Plan{By: query.By{Keys: []query.Key{{Name: "src", Bits4: 24, Bits6: 48}}}})
				if err != nil || a.Records > 0 && a.Total.Bytes != 10*a.Records {
					t.Errorf("%v, %d bytes in %d records", err, a.Total.Bytes, a.Records)
				}
			}
		})
	}
	for n := range 100 {
		var batch []flow.Record
		for i := range 50 {
			batch = append(batch, record(byte(i), byte(n), 10))
		}
		fill(s, n, n+1, batch...)
	}
	readers.Wait()
}

// follow answers one query for each interval.
func follow(ctx context.Context, s *Store, q query.Plan, emit func(query.Answer) error) error {
	if err := q.Check(); err != nil {
		return err
	}
	return s.Follow(ctx, nil, func(p Period) error { return emit(p.Answer(q)) })
}
