package disk

import (
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/store"
)

// TestReach: how far back the history will reach is known from its first files on, also after a restart, and about true once
// files leave: what the aged ones take is an estimate.
func TestReach(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	n := 0
	fill := func(files int) {
		t.Helper()
		for range files {
			for range 4 {
				b := store.NewBuilder(store.Head{Sequence: uint64(n + 1), From: at(n), To: at(n + 1)})
				for i := range 400 {
					r := numbered(uint64(n*7919+i*i) % 50_000)
					b.Add(&r, 0)
				}
				e := b.End()
				s.write(&e)
				n++
			}
			if err := s.Seal(); err != nil {
				t.Fatal(err)
			}
			s.tend(time.Now())
		}
	}
	if r := s.Status().Reach; r != 0 {
		t.Errorf("before the first file: %v s", r)
	}
	s.cfg.Size = 1 << 40
	fill(2)
	size := 6 * s.size() // of 12 files
	s.cfg.Size = size
	early := s.Status().Reach
	fill(6) // more than half of it: some are aged
	if st := s.Status(); st.Aged == 0 || st.Reach < early*0.8 || st.Reach > early*1.2 {
		t.Errorf("at first %.0f s, later %.0f s; %+v", early, st.Reach, st)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	s.cfg.Size = size
	if again := s.Status().Reach; again < early*0.8 || again > early*1.2 {
		t.Errorf("at first %.0f s, after a restart %.0f s", early, again)
	}
	for s.Status().Counts.Removed == 0 {
		if fill(1); n > 2000 {
			t.Fatalf("%.0f s were expected; after %d s nothing has left", early, 10*n)
		}
	}
	had := s.Status().Reach
	if t.Logf("%.0f s were expected, %.0f s are there", early, had); had < early/3 || had > early*3 {
		t.Error("that is not about the same")
	}
	s.cfg.Time = time.Minute
	if r := s.Status().Reach; r != 60 {
		t.Errorf("history.time is a minute, and it reaches back %.0f s", r)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}
