package queue

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func open(t *testing.T, dir string, limit uint64) *Queue {
	t.Helper()
	q, err := Open(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func put(t *testing.T, q *Queue, run, number uint64) {
	t.Helper()
	if err := q.Put(run, number, 3, content(number)); err != nil {
		t.Fatal(err)
	}
}

func content(number uint64) []byte { return bytes.Repeat([]byte{byte(number)}, 100) }

// whole accepts what put wrote.
func whole(e Entry, b []byte) error {
	if !bytes.Equal(b, content(e.Number)) {
		return errors.New("damaged")
	}
	return nil
}

// TestQueue: entries leave in their order, whichever run wrote them; beyond the limit the oldest leave, but not those that are sent;
// and what leaves without being sent is counted.
func TestQueue(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, 450)
	for n := uint64(1); n <= 2; n++ {
		put(t, q, 1, n)
	}
	if _, err := Open(dir, 450); !errors.Is(err, ErrLocked) {
		t.Errorf("a second agent: %v", err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "00000000000000000009-1-5.interval.tmp"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	q = open(t, dir, 450)
	if files, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(files) > 0 {
		t.Errorf("%v is left", files)
	}
	if Last(dir) != 2 {
		t.Errorf("last %d", Last(dir))
	}
	put(t, q, 2, 1)
	batch, body := q.Take(200, whole)
	if len(batch) != 2 || batch[0].Number != 1 || batch[0].Run != 1 || batch[1].Number != 2 || batch[0].Records != 3 ||
		!bytes.Equal(body, append(content(1), content(2)...)) {
		t.Fatalf("%+v, %d bytes", batch, len(body))
	}
	put(t, q, 2, 2)
	put(t, q, 2, 3) // the first one of run 2 leaves: those before are being sent
	if c := q.Counts(); c.Full != 3 || c.Entries != 4 || c.Records != 12 || c.Bytes != 400 {
		t.Errorf("%+v", c)
	}
	if err := q.Done(1); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, batch[1].file)
	damaged := content(2)
	damaged[60] ^= 1
	if err := os.WriteFile(file, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	if batch, _ := q.Take(0, whole); len(batch) != 1 || batch[0].Run != 2 || batch[0].Number != 2 || q.Counts().Damaged != 3 {
		t.Errorf("behind a damaged file: %+v, %+v", batch, q.Counts())
	}
	if err := errors.Join(q.Keep(7), q.Done(1), os.Truncate(filepath.Join(dir, q.entries[0].file), 50)); err != nil {
		t.Fatal(err)
	}
	if batch, _ := q.Take(0, whole); len(batch) > 0 || q.Counts().Bytes != 0 || q.Counts().Damaged != 6 {
		t.Errorf("the queue is not empty: %+v", q.Counts())
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if Last(dir) != 7 {
		t.Errorf("last %d of an empty queue", Last(dir))
	}
}

// TestRenumber: entries of a run get another identity, in their files, too; those of others keep theirs.
func TestRenumber(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, 1000)
	put(t, q, 1, 8)
	put(t, q, 2, 4)
	put(t, q, 2, 5)
	n, err := q.Renumber(2, 3, func(b []byte, next Entry) { copy(b, content(next.Number)) })
	if err != nil || n != 2 {
		t.Fatal(n, err)
	}
	put(t, q, 3, 3)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q = open(t, dir, 1000)
	defer q.Close()
	batch, _ := q.Take(1000, whole)
	for i, want := range []Entry{{Run: 1, Number: 8}, {Run: 3, Number: 1}, {Run: 3, Number: 2}, {Run: 3, Number: 3}} {
		if len(batch) != 4 || batch[i].Run != want.Run || batch[i].Number != want.Number {
			t.Fatalf("%+v", batch)
		}
	}
}

// TestEarlier: what the exporter of Waymark 0.1 for ClickHouse left is sent.
func TestEarlier(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "00000000000000000012-18a5c-3.interval")
	if err := os.WriteFile(file, content(12), 0o600); err != nil {
		t.Fatal(err)
	}
	q := open(t, dir, 1000)
	defer q.Close()
	put(t, q, 2, 13)
	batch, _ := q.Take(1000, whole)
	if len(batch) != 2 || batch[0].Number != 12 || batch[0].Run != 0x18a5c || batch[0].Records != 3 || batch[1].Number != 13 {
		t.Fatalf("%+v", batch)
	}
	if err := q.Done(2); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestRenumberKilled: an agent that is killed while entries get another identity leaves one of them twice, and each is sent once.
// Entries that cannot be written again keep their identity, and no number is left out.
func TestRenumberKilled(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, 1000)
	for n := uint64(4); n <= 6; n++ {
		put(t, q, 2, n)
	}
	last := q.entries[2]
	if err := os.Remove(filepath.Join(dir, q.entries[1].file)); err != nil { // what cannot be read cannot be written again
		t.Fatal(err)
	}
	n, err := q.Renumber(2, 3, func(b []byte, next Entry) { copy(b, content(next.Number)) })
	if err == nil || n != 2 || q.entries[2].Number != 2 || q.entries[1].Run != 2 {
		t.Fatalf("%d %v: %+v", n, err, q.entries)
	}
	if err := errors.Join(write(filepath.Join(dir, last.file), content(6)), q.Close()); err != nil { // it was not removed yet
		t.Fatal(err)
	}
	q = open(t, dir, 1000)
	defer q.Close()
	batch, _ := q.Take(1000, whole)
	if len(batch) != 2 || q.Counts().Damaged != 0 {
		t.Errorf("%+v, %+v", batch, q.Counts())
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*.interval")); len(files) != 2 {
		t.Errorf("%v", files)
	}
}

// TestNoDescriptors: a file that cannot be opened for a while is not lost.
func TestNoDescriptors(t *testing.T) {
	q, err := Open(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if err := q.Put(1, 1, 10, []byte("interval")); err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = 1
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	batch, _ := q.Take(1<<20, func(Entry, []byte) error { return nil })
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	again, body := q.Take(1<<20, func(Entry, []byte) error { return nil })
	if len(batch) != 0 || len(again) != 1 || string(body) != "interval" || q.Counts().Damaged != 0 {
		t.Errorf("without descriptors %v, then %v %q; %+v", batch, again, body, q.Counts())
	}
}
