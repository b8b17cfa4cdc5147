package disk

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/test/soak"
)

// TestFlippedBits: a bit that flipped anywhere is found, reported, and costs that file alone.
func TestFlippedBits(t *testing.T) {
	dir, path := sealedFile(t)
	for _, name := range []string{path, sumPath(path)} {
		eachFlip(t, name, soak.Times(4001, 1), func(bit int) {
			s := open(t, dir)
			defer s.close()
			a := ask(t, query.Plan{}, s)
			if s.Status().Counts.Damaged != 1 || a.Records != 0 || len(s.segments) > 0 && (a.Lost != 30 || !strings.Contains(a.Partial, "damaged")) {
				t.Fatalf("bit %d of %s: %d records, %d lost, %q, %+v", bit, filepath.Base(name), a.Records, a.Lost, a.Partial, s.counts)
			}
			if s.Last() != 30 {
				t.Fatalf("bit %d of %s: the next interval takes the number %d of one that may be read again", bit, filepath.Base(name), s.Last()+1)
			}
		})
	}
	s := open(t, dir)
	defer s.close()
	if a := ask(t, query.Plan{}, s); a.Records != 60 || a.Partial != "" {
		t.Errorf("%+v", a)
	}
}

// eachFlip calls each while one bit of a file is another one: every so many of all bits, one after the other.
func eachFlip(t *testing.T, path string, every int, each func(bit int)) {
	t.Helper()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	put := func(b byte, at int) {
		if _, err := file.WriteAt([]byte{b}, int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	for bit := 0; bit < 8*len(whole); bit += every {
		at := bit / 8
		put(whole[at]^1<<(bit%8), at)
		each(bit)
		put(whole[at], at)
	}
}

// writtenLog is a log of eight intervals, with where each ends.
func writtenLog(t *testing.T) (whole []byte, name string, ends []int) {
	t.Helper()
	b := newBoth(t, t.TempDir())
	for n := range 8 {
		b.fill(n, numbered(uint64(n)))
		ends = append(ends, int(b.disk.log.size))
	}
	path := b.disk.log.path
	if err := b.disk.close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole, filepath.Base(path), ends
}

// TestCutLog: of a log that was cut anywhere, what is whole before that is there, and new intervals follow it.
func TestCutLog(t *testing.T) {
	whole, name, ends := writtenLog(t)
	for cut := 0; cut < len(whole); cut += soak.Times(37, 1) {
		kept := slices.IndexFunc(ends, func(end int) bool { return end > cut })
		s := openLogged(t, name, whole[:cut], kept)
		torn := cut > 0 && cut != len(logMagic) && (kept == 0 || ends[kept-1] != cut)
		if s.counts.Damaged > 0 || (s.counts.Torn > 0) != torn {
			t.Errorf("cut at %d: %+v", cut, s.counts)
		}
		goOn(t, s, kept)
	}
}

// TestFlippedLog: of a log in which any bit flipped, what is whole before that is there, what follows is reported as
// cut off, and new intervals follow.
func TestFlippedLog(t *testing.T) {
	whole, name, ends := writtenLog(t)
	for bit := 0; bit < 8*len(whole); bit += soak.Times(301, 1) {
		text := slices.Clone(whole)
		text[bit/8] ^= 1 << (bit % 8)
		kept := slices.IndexFunc(ends, func(end int) bool { return end > bit/8 })
		s := openLogged(t, name, text, kept)
		if damaged := bit/8 < len(logMagic); (s.counts.Damaged > 0) != damaged || (s.counts.Torn > 0) == damaged {
			t.Errorf("bit %d: %+v", bit, s.counts)
		}
		goOn(t, s, kept)
	}
}

// TestDamagedLog: of a log in which a bit flips while the agent runs, a query says which intervals are lost, and a file
// is made of those before it.
func TestDamagedLog(t *testing.T) {
	for damaged := range 8 {
		b := newBoth(t, t.TempDir())
		var end int64
		for n := range 8 {
			b.fill(n, numbered(uint64(n)))
			if n <= damaged {
				end = b.disk.log.size
			}
		}
		if _, err := b.disk.log.file.WriteAt([]byte{0xff}, end-2); err != nil {
			t.Fatal(err)
		}
		lost := uint64(8 - damaged)
		check := func(what string, lost uint64, partial string) {
			t.Helper()
			if a := ask(t, query.Plan{}, b.disk); a.Records != uint64(damaged) || a.Lost != lost || !strings.Contains(a.Partial, partial) {
				t.Errorf("%s, interval %d: %d records, %d lost, %q", what, damaged, a.Records, a.Lost, a.Partial)
			}
		}
		check("log", lost, "it is damaged")
		if err := b.disk.Seal(); err != nil {
			t.Fatal(err)
		}
		check("file", 0, "")
		if st := b.disk.Status(); st.Counts.Damaged != 1 || st.Files != min(damaged, 1) {
			t.Errorf("interval %d: %+v", damaged, st)
		}
		goOn(t, b.disk, damaged)
	}
}

// openLogged opens a directory with a log, of which so many intervals are whole.
func openLogged(t *testing.T, name string, text []byte, kept int) *Store {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o640); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	if got := ask(t, query.Plan{}, s); got.Intervals != kept || got.Records != uint64(kept) || s.Last() != uint64(kept) {
		t.Fatalf("%d bytes: %d intervals, want %d", len(text), got.Intervals, kept)
	}
	return s
}

// goOn adds an interval to those that were kept, and closes the store.
func goOn(t *testing.T, s *Store, kept int) {
	t.Helper()
	b := store.NewBuilder(store.Head{Sequence: s.Last() + 1, From: at(50), To: at(51)})
	r := numbered(50)
	b.Add(&r, 0)
	e := b.End()
	s.write(&e)
	if got := ask(t, query.Plan{}, s); got.Records != uint64(kept)+1 {
		t.Errorf("%d records after another one, want %d", got.Records, kept+1)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

// TestDiskFull: what cannot be written to a full file system is counted, what is there can be read, and once there is
// space again, what comes is kept.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<19), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "history")
	b := newBoth(t, path)
	n := 0
	fill := func() obs.History {
		records := make([]flow.Record, 200)
		for i := range records {
			records[i] = numbered(uint64(n*200 + i))
		}
		b.fill(n, records...)
		n++
		return b.disk.Status()
	}
	for st := fill(); st.Counts.Lost < 5; st = fill() {
		if n > 1000 {
			t.Fatalf("never full: %+v", st)
		}
		if n%5 == 0 {
			b.disk.try("seal", b.disk.Seal())
		}
	}
	st := b.disk.Status()
	if st.Failing == "" || st.Counts.Lost != 5 || st.Counts.LostRecords != 5*200 {
		t.Errorf("full: %+v", st)
	}
	kept := st.Counts.Intervals
	if a := ask(t, query.Plan{}, b.disk); a.Intervals != int(kept) || a.Records != kept*200 || a.Partial != "" {
		t.Errorf("full: %d records of %d intervals, want %d of %d, %s", a.Records, a.Intervals, kept*200, kept, a.Partial)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if st = fill(); st.Failing != "" || st.Counts.Intervals != kept+1 || st.Counts.Lost != 5 {
		t.Errorf("space again: %+v", st)
	}
	if err := errors.Join(b.disk.Seal(), b.disk.close()); err != nil {
		t.Fatal(err)
	}
	b.disk = open(t, path)
	if a := ask(t, query.Plan{}, b.disk); a.Records != (kept+1)*200 || a.Lost != 5 || a.Partial != "" {
		t.Errorf("later: %d records, want %d, %d lost, %s", a.Records, (kept+1)*200, a.Lost, a.Partial)
	}
	if err := b.disk.close(); err != nil {
		t.Fatal(err)
	}
}

// TestSealIsTriedAgain: a log that cannot be made a file takes intervals on, and is not read again for each of them, but
// once a minute.
func TestSealIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	b := newBoth(t, dir)
	now := epoch
	b.disk.deps.Clock = func() time.Time { return now }
	b.fill(0, numbered(0))
	if err := os.Mkdir(segmentName(dir, 1, 1, false)+tmpSuffix, 0o750); err != nil {
		t.Fatal(err)
	}
	const hour = 360 // intervals
	for n := range 3 {
		b.fill(hour+n, numbered(uint64(n)))
	}
	if c := b.disk.Status().Counts; c.Errors != 1 || c.Sealed != 0 || c.Lost != 0 || c.Intervals != 4 {
		t.Errorf("at once: %+v", c)
	}
	now = now.Add(tryEvery)
	b.fill(hour+3, numbered(3))
	if c := b.disk.Status().Counts; c.Errors != 1 || c.Sealed != 1 || c.Lost != 0 || c.Intervals != 5 {
		t.Errorf("later: %+v", c)
	}
	if a := ask(t, query.Plan{}, b.disk); a.Records != 5 || a.Lost != 0 || a.Partial != "" {
		t.Errorf("%d records, %d lost, %q", a.Records, a.Lost, a.Partial)
	}
	if err := b.disk.close(); err != nil {
		t.Fatal(err)
	}
}

// TestLogIsBounded: a log that cannot be sealed stays within half of the size. What it had is counted when it is given up,
// files stay, and the next log is sealed again.
func TestLogIsBounded(t *testing.T) {
	b := newBoth(t, t.TempDir())
	now := epoch
	b.disk.deps.Clock = func() time.Time { return now }
	b.fill(0, numbered(0))
	if err := b.disk.Seal(); err != nil {
		t.Fatal(err)
	}
	b.disk.cfg.Size = 1 << 20
	b.fill(1, numbered(1))
	const hour = 360 // intervals
	records := make([]flow.Record, 500)
	n, most := 0, uint64(0)
	for ; b.disk.Status().Counts.GivenUp == 0; n++ {
		if n == 1000 {
			t.Fatalf("the log is never given up: %+v", b.disk.Status())
		}
		blocked := segmentName(b.disk.cfg.Path, b.disk.log.heads[0].Sequence, b.disk.last, false) + tmpSuffix
		if err := os.Mkdir(blocked, 0o750); err != nil { // the file that the log would become
			t.Fatal(err)
		}
		for i := range records {
			records[i] = numbered(uint64(n*len(records) + i))
		}
		now = now.Add(tryEvery)
		b.fill(hour+n, records...)
		if st := b.disk.Status(); st.Counts.GivenUp == 0 && st.Failing == "" {
			t.Fatalf("nothing says that the log cannot be sealed: %+v", st)
		}
		most = max(most, b.disk.size())
		if err := os.Remove(blocked); err != nil {
			t.Fatal(err)
		}
	}
	st := b.disk.Status()
	if st.Counts.GivenUp != uint64(1+(n-1)*len(records)) || st.Failing != "" || st.Files != 1 || st.Counts.Removed != 0 {
		t.Errorf("after %d intervals: %+v", n, st)
	}
	if most > b.disk.cfg.Size {
		t.Errorf("files took %d bytes, at most %d may be", most, b.disk.cfg.Size)
	}
	if a := ask(t, query.Plan{}, b.disk); a.Records != uint64(1+len(records)) || a.Lost != uint64(n) || a.Partial != "" {
		t.Errorf("%d records, %d intervals lost, %q", a.Records, a.Lost, a.Partial)
	}
	b.fill(2*hour+n, numbered(1))
	if c := b.disk.Status().Counts; c.Sealed != 2 {
		t.Errorf("the next log: %+v", c)
	}
	if err := b.disk.close(); err != nil {
		t.Fatal(err)
	}
}

// TestLogIsKeptOnce: one try that failed gives up nothing, however large the log is.
func TestLogIsKeptOnce(t *testing.T) {
	b := newBoth(t, t.TempDir())
	now := epoch
	b.disk.deps.Clock = func() time.Time { return now }
	b.disk.cfg.Size = 2 // all logs are too large
	b.fill(0, numbered(0))
	blocked := segmentName(b.disk.cfg.Path, b.disk.log.heads[0].Sequence, b.disk.last, false) + tmpSuffix
	if err := os.Mkdir(blocked, 0o750); err != nil {
		t.Fatal(err)
	}
	const hour = 360 // intervals
	b.fill(hour, numbered(1))
	b.fill(hour+1, numbered(2)) // too soon to try again
	if c := b.disk.Status().Counts; c.GivenUp != 0 || c.Sealed != 0 {
		t.Errorf("after one try: %+v", c)
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	now = now.Add(tryEvery)
	b.fill(hour+2, numbered(3))
	if c := b.disk.Status().Counts; c.GivenUp != 0 || c.Sealed != 1 {
		t.Errorf("after the second one: %+v", c)
	}
	if err := b.disk.close(); err != nil {
		t.Fatal(err)
	}
}

// TestLaterVersion: a file of a later version is refused with what to do, is not counted among those that are there,
// and stays as it is.
func TestLaterVersion(t *testing.T) {
	dir, path := sealedFile(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(text, []byte(metaFormat)) + len(metaFormat)
	at += bytes.IndexByte(text[at:], formatVersion[0])
	text[at]++
	sum := sums{to: io.Discard}
	if _, err := sum.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(path, text, 0o640), os.WriteFile(sumPath(path), sum.bytes(), 0o640)); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	d := deps()
	d.Log = slog.New(slog.NewTextHandler(&log, nil))
	s, err := Open(Config{Path: dir, Size: 1 << 30}, d)
	if err != nil {
		t.Fatal(err)
	}
	if want := `has format \"2\", this Waymark reads 1: use a later version, or remove the file`; !strings.Contains(log.String(), want) || !strings.Contains(log.String(), path) {
		t.Errorf("the log says %s", log.String())
	}
	goOn(t, s, 0)
	s = open(t, dir)
	defer s.close()
	if err := s.Seal(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, text) {
		t.Errorf("the file of a later version was changed: %v", err)
	}
}

// TestReadersDelayNoDrain: an interval is taken while somebody holds the store as readers and writers do, and while
// the disk is so slow that nothing fits any more.
func TestReadersDelayNoDrain(t *testing.T) {
	b := newBoth(t, t.TempDir())
	b.fill(0, numbered(0))
	reader := b.disk.Open()
	defer reader.Close()
	b.disk.mu.Lock() // with it, Append would not return
	for n := range 3 {
		e := store.NewBuilder(store.Head{Sequence: uint64(n + 2), From: at(n), To: at(n + 1)})
		r := numbered(1)
		for range maxWaiting / 2 {
			e.Add(&r, 0)
		}
		b.disk.Append(e.End())
	}
	b.disk.mu.Unlock()
	if st := b.disk.Status(); st.Counts.Lost != 1 || st.Counts.LostRecords != maxWaiting/2 || st.Failing == "" {
		t.Errorf("of three intervals, of which two fit: %+v", st)
	}
	if err := b.disk.close(); err != nil {
		t.Fatal(err)
	}
}
