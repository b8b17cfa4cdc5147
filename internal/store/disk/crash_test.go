package disk

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/test/soak"
)

// childVariable names the directory that a child of TestKilled fills until it is killed.
const childVariable = "WAYMARK_TEST_HISTORY"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		fillUntilKilled(dir)
	}
	os.Exit(m.Run())
}

// numbered is the one record of an interval, of which its number follows.
func numbered(n uint64) flow.Record {
	return flow.Record{
		Iface: "eth0", Family: 4, Src: netip.AddrFrom4([4]byte{10, 0, 0, 1}), Dst: netip.AddrFrom4([4]byte{10, 0, 0, 2}), Proto: 17, SrcPort: uint16(n), DstPort: uint16(n >> 16),
		Counters: flow.Counters{Packets: 1, Bytes: n*7 + 1}, First: at(int(n)), Last: at(int(n) + 1),
	}
}

// fillUntilKilled writes an interval after the other, says which are written, and seals often.
func fillUntilKilled(dir string) {
	s, err := Open(Config{Path: dir, Size: 1 << 30}, deps())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for n := s.Last() + 1; ; n++ {
		b := store.NewBuilder(store.Head{Sequence: n, From: at(int(n)), To: at(int(n) + 1)})
		r := numbered(n)
		b.Add(&r, 0)
		e := b.End()
		s.write(&e)
		fmt.Println(n)
		if n%40 == 0 {
			s.try("seal", s.Seal())
		}
		if n%200 == 0 {
			_, young := s.oldest()
			s.try("age", s.age(young))
		}
	}
}

// TestKilled kills an agent in the middle of writes, seals and ageing, again and again: every
// interval that it said was written is there, whole and once.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var said uint64
	for round := range soak.Times(6, 100) {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), childVariable+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for i := 0; lines.Scan(); i++ {
			n, err := strconv.ParseUint(lines.Text(), 10, 64)
			if err != nil || n <= said {
				t.Fatalf("round %d: %s after %d", round, lines.Text(), said)
			}
			said = n
			if i == 1+round*37%97 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) {
			t.Fatalf("the child ended: %v", err)
		}
	}
	s := open(t, dir)
	defer s.close()
	if s.counts.Damaged > 0 || s.Last() < said || s.Last() > said+1 {
		t.Fatalf("last %d, said %d, %+v", s.Last(), said, s.counts)
	}
	a := ask(t, query.Plan{}, s)
	if a.Lost > 0 || a.Partial != "" || a.Records != s.Last() && s.Status().Aged == 0 {
		t.Errorf("%d records of %d intervals, %d lost, %s", a.Records, s.Last(), a.Lost, a.Partial)
	}
	var want uint64
	for n := range s.Last() {
		want += (n+1)*7 + 1
	}
	if a.Total.Packets != s.Last() || a.Total.Bytes != want {
		t.Errorf("%d packets of %d bytes, want %d of %d", a.Total.Packets, a.Total.Bytes, s.Last(), want)
	}
	seen := map[uint64]bool{}
	for _, w := range a.Rows {
		n := uint64(w.SrcPort) | uint64(w.DstPort)<<16
		if w.Unattributed {
			continue
		}
		if seen[n] || w.Bytes != n*7+1 {
			t.Errorf("interval %d: %+v", n, w.Counters)
		}
		seen[n] = true
	}
	t.Logf("%d intervals in %d files, %d aged", s.Last(), len(s.segments), s.Status().Aged)
}

// sealedFile is the one file of a directory with some records.
func sealedFile(t *testing.T) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	b := newBoth(t, dir)
	for n := range 30 {
		r := numbered(uint64(n))
		b.fill(n, r, r)
	}
	if err := errors.Join(b.disk.Seal(), b.disk.close()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v", files, err)
	}
	return dir, files[0]
}

// TestBadDirectories: a directory that another agent has, that cannot be written, or has a file of
// a later version.
func TestBadDirectories(t *testing.T) {
	dir, path := sealedFile(t)
	s := open(t, dir)
	if _, err := Open(Config{Path: dir}, deps()); !errors.Is(err, ErrLocked) {
		t.Errorf("locked: %v", err)
	}
	s.close()
	if _, err := Open(Config{Path: filepath.Join(path, "below")}, deps()); err == nil {
		t.Error("a directory below a file was opened")
	}
	if err := os.WriteFile(filepath.Join(dir, "log-00000000000000000099.wal"), []byte("WMLOG77\nlater"), 0o640); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	defer s.close()
	if a := ask(t, query.Plan{}, s); s.counts.Damaged != 1 || a.Records != 60 {
		t.Errorf("%+v, %d records", s.counts, a.Records)
	}
	if _, err := os.Stat(filepath.Join(dir, "log-00000000000000000099.wal.damaged")); err != nil {
		t.Errorf("a log that cannot be read was not kept: %v", err)
	}
}

// TestLaterLog: logs with intervals of a later version are kept as they are, each under a name of its own, and the agent says why.
func TestLaterLog(t *testing.T) {
	dir := t.TempDir()
	kept := map[string][]byte{}
	s := open(t, dir)
	for _, suffix := range []string{".damaged", ".damaged2"} {
		goOn(t, s, 0)
		paths, err := filepath.Glob(filepath.Join(dir, "*.wal"))
		if err != nil || len(paths) != 1 {
			t.Fatalf("%v %v", paths, err)
		}
		path := paths[0]
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		interval := text[len(logMagic)+8:]
		interval[0]++ // its version
		binary.LittleEndian.PutUint32(text[len(logMagic)+4:], crc32.Checksum(interval, castagnoli))
		if err := os.WriteFile(path, text, 0o640); err != nil {
			t.Fatal(err)
		}
		kept[path+suffix] = text
		var said bytes.Buffer
		d := deps()
		d.Log = slog.New(slog.NewTextHandler(&said, nil))
		if s, err = Open(Config{Path: dir, Size: 1 << 30}, d); err != nil {
			t.Fatal(err)
		}
		if want := "of the log is not known: read it with the Waymark that wrote it"; s.counts.Damaged != 1 || !strings.Contains(said.String(), want) {
			t.Errorf("%+v: %s", s.counts, said.String())
		}
		if want := "path=" + path + suffix + " "; !strings.Contains(said.String(), want) {
			t.Errorf("nothing says %q: %s", want, said.String())
		}
	}
	goOn(t, s, 0)
	for path, want := range kept {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("a log of a later version is not kept: %v", err)
		}
	}
}

// TestBounds: files are aged before they leave, sums stay equal, and all stay within the size.
func TestBounds(t *testing.T) {
	dir := t.TempDir()
	b := newBoth(t, dir)
	b.disk.cfg.Size = 1 << 40
	var total flow.Counters
	for n := range 30 {
		var records []flow.Record
		for i := range 300 {
			r := numbered(uint64(n*1000 + i*i%977))
			r.Packets, r.CEPackets = 3, uint64(i%2)
			twin := r // the same packets, where they leave
			r.Direction, twin.Iface, twin.Direction, twin.IfIndex = flow.Ingress, "eth1", flow.Egress, 3
			r.TTLMin, r.TTLMax, twin.TTLMin, twin.TTLMax = 64, 64, 63, 63
			twin.Packets = 2
			records = append(records, r, twin)
			total.Add(&r.Counters)
		}
		b.fill(n, records...)
		if n%5 == 4 {
			if err := b.disk.Seal(); err != nil {
				t.Fatal(err)
			}
		}
	}
	by, err := query.ParseBy("proto")
	if err != nil {
		t.Fatal(err)
	}
	before := ask(t, query.Plan{By: by}, b.disk)
	if before.Total.Bytes != total.Bytes || before.Repeated.Packets == 0 {
		t.Fatalf("%+v, want %+v", before.Total, total)
	}
	size := b.disk.size()
	b.disk.cfg.Size = size
	b.disk.tend(time.Now())
	after := ask(t, query.Plan{By: by}, b.disk)
	if st := b.disk.Status(); st.Aged == 0 || st.Bytes >= size*3/4 || st.Counts.Removed > 0 {
		t.Errorf("%+v of %d", st, size)
	}
	if after.Total != before.Total || after.Repeated != before.Repeated || after.Summed == 0 {
		t.Errorf("sums after ageing %+v and %+v, before %+v and %+v", after.Total, after.Repeated, before.Total, before.Repeated)
	}
	largest := ask(t, query.Plan{Limit: 5}, b.disk)
	if largest.Rows[0].Unattributed && largest.Rows[1].Unattributed && largest.Rows[4].Unattributed {
		t.Error("the heaviest flows are gone")
	}
	b.disk.cfg.Size = size / 4
	b.disk.tend(time.Now())
	if st := b.disk.Status(); st.Bytes > size/4 || st.Counts.Removed == 0 {
		t.Errorf("%+v of %d", st, size/4)
	}
	if a := ask(t, query.Plan{Since: at(0), By: by}, b.disk); a.Short != query.ShortHistory {
		t.Errorf("short %q", a.Short)
	}
	b.disk.cfg.Time = time.Hour
	b.disk.tend(at(10_000))
	if st := b.disk.Status(); st.Files != 0 {
		t.Errorf("%+v", st)
	}
	b.disk.close()
}
