package disk

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
)

// TestKeep keeps intervals that come again and again, across stores that are killed at any step: each is there once.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	now := time.Now().Truncate(time.Hour)
	open := func() *Store {
		t.Helper()
		s, err := Open(Config{Path: dir, Size: 1 << 30}, Deps{Origin: flow.Origin{Host: "athos"}, Log: slog.New(slog.DiscardHandler), Clock: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one := func(n uint64) store.Ended {
		b := store.NewBuilder(store.Head{Sequence: 77, From: now.Add(time.Duration(n) * time.Second), To: now.Add(time.Duration(n+1) * time.Second)})
		b.Add(&flow.Record{Iface: "eth0", Family: 4, Proto: 6, Unattributed: true, Counters: flow.Counters{Packets: n}}, 0)
		return b.End()
	}
	keep := func(s *Store, boot, n uint64, sum uint32, want Kept) {
		t.Helper()
		e := one(n)
		if got, err := s.Keep(&e, Identity{boot, n, sum}); err != nil || got != want {
			t.Errorf("interval %d of run %d: %v %v, want %v", n, boot, got, err, want)
		}
	}
	killed := func(s *Store) { // what Close would do is left undone
		s.lock.Close()
	}
	s := open()
	keep(s, 1, 1, 11, KeptNew)
	keep(s, 1, 2, 12, KeptNew)
	keep(s, 1, 2, 12, KeptKnown)
	keep(s, 1, 2, 99, KeptOther)
	killed(s)

	// The file of identities lacks what only the log has.
	if err := os.Truncate(filepath.Join(dir, "received"), identityBytes+5); err != nil {
		t.Fatal(err)
	}
	s = open()
	keep(s, 1, 1, 11, KeptKnown)
	keep(s, 1, 2, 12, KeptKnown)
	keep(s, 1, 3, 13, KeptNew)
	if err := s.Seal(); err != nil { // the log is gone: the file of identities has all
		t.Fatal(err)
	}
	killed(s)
	s = open()
	for n := range uint64(3) {
		keep(s, 1, n+1, uint32(11+n), KeptKnown)
	}
	// A later run; what the earlier one sends again is known, however old it is.
	keep(s, 2, 1, 21, KeptNew)
	if last := s.Received(1); last != 3 {
		t.Errorf("the last interval of the first run is %d, want 3", last)
	}
	// The file stays bounded, and knows the latest.
	for n := range uint64(2 * identityMost) {
		if err := s.ids.add(Identity{3, n + 1, uint32(n)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.ids.list); n > 2*identityMost {
		t.Errorf("%d identities are known, want at most %d", n, 2*identityMost)
	}
	if got := s.ids.find(Identity{3, 2 * identityMost, 2*identityMost - 1}); got != KeptKnown {
		t.Errorf("the latest: %v", got)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if st := s.Status(); st.Records != 4 {
		t.Errorf("%d records, want 4", st.Records)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
