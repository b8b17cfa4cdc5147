package queue

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func open(t *testing.T, dir string, limit, run uint64) *Queue {
	t.Helper()
	q, err := Open(dir, limit, run)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func put(t *testing.T, q *Queue, number uint64) {
	t.Helper()
	if err := q.Put(number, 3, bytes.Repeat([]byte{byte(number)}, 100)); err != nil {
		t.Fatal(err)
	}
}

// TestQueue: entries leave in their order, whichever run wrote them; beyond the limit the oldest leave, but not the one that is sent;
// and what leaves without being sent is counted.
func TestQueue(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, 350, 1)
	for n := uint64(1); n <= 2; n++ {
		put(t, q, n)
	}
	if _, err := Open(dir, 350, 1); !errors.Is(err, ErrLocked) {
		t.Errorf("a second agent: %v", err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "00000000000000000009-1-5.interval.tmp"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	q = open(t, dir, 350, 2)
	if q.Last() != 2 {
		t.Errorf("last %d", q.Last())
	}
	e, b, ok := q.Take()
	if !ok || e.Number != 1 || e.Run != 1 || e.Records != 3 || !bytes.Equal(b, bytes.Repeat([]byte{1}, 100)) {
		t.Fatalf("%+v, %d bytes, %t", e, len(b), ok)
	}
	put(t, q, 3)
	put(t, q, 4) // 2 leaves: 1 is being sent
	if c := q.Counts(); c.Full != 3 || c.Entries != 3 || c.Records != 9 || c.Bytes != 300 {
		t.Errorf("%+v", c)
	}
	if err := q.Done(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, Entry{Number: 3, Run: 2, Records: 3}.name())
	if err := os.Truncate(name, 50); err != nil {
		t.Fatal(err)
	}
	if e, _, ok := q.Take(); !ok || e.Number != 4 || q.Counts().Damaged != 3 {
		t.Errorf("behind a damaged file: %+v, %+v", e, q.Counts())
	}
	if err := errors.Join(q.Keep(4), q.Done()); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := q.Take(); ok || q.Counts().Bytes != 0 {
		t.Errorf("the queue is not empty: %+v", q.Counts())
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if q = open(t, dir, 350, 3); q.Last() != 4 {
		t.Errorf("last %d of an empty queue", q.Last())
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
}
