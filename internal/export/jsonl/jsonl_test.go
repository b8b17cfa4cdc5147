package jsonl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/pipeline"
	"github.com/waymark-net/waymark/test/await"
)

var origin = flow.Origin{Host: "gw"}

// numbered returns records that are distinguished by their packet count.
func numbered(first, n int) []flow.Record {
	records := make([]flow.Record, n)
	for i := range records {
		records[i] = tcp
		records[i].Packets = uint64(first + i)
	}
	return records
}

// export expects success.
func export(t *testing.T, e *Exporter, records []flow.Record) {
	t.Helper()
	if n, err := e.Export(t.Context(), records); n != len(records) || err != nil {
		t.Fatalf("exported %d of %d: %v", n, len(records), err)
	}
}

// packets decodes every line, which must be whole, and returns the packet counts.
func packets(t *testing.T, text []byte) (got []uint64) {
	t.Helper()
	if len(text) > 0 && text[len(text)-1] != '\n' {
		t.Errorf("the last line is not whole: %q", text[max(0, len(text)-80):])
	}
	for line := range bytes.Lines(text) {
		o, r, err := Decode(line)
		if err != nil || o != origin {
			t.Fatalf("line of %+v: %v: %s", o, err, line)
		}
		got = append(got, r.Packets)
	}
	return got
}

// expectPackets wants exactly the packet counts from 0 to n-1.
func expectPackets(t *testing.T, text []byte, n int) {
	t.Helper()
	got := packets(t, text)
	for i, p := range got {
		if p != uint64(i) {
			t.Fatalf("record %d has packets %d", i, p)
		}
	}
	if len(got) != n {
		t.Errorf("%d records, want %d", len(got), n)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.jsonl")
	e := New(Config{Path: path}, origin)
	export(t, e, nil)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("an empty batch must make the file, readable by its group alone: %v %v", st, err)
	}
	export(t, e, numbered(0, 1000))
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	e = New(Config{Path: path}, origin) // a second run appends
	export(t, e, numbered(1000, 1))
	expectPackets(t, readFile(t, path), 1001)
	if e.Name() != "jsonl" || e.Target() != path || New(Default(), origin).Target() != "stdout" {
		t.Error("name and target")
	}
}

func TestReopenAfterRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.jsonl")
	e := New(Config{Path: path}, origin)
	export(t, e, numbered(0, 10))
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	e.Reopen()
	export(t, e, numbered(0, 20))
	expectPackets(t, readFile(t, path+".1"), 10)
	expectPackets(t, readFile(t, path), 20)
}

func TestUnfinishedLineIsEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.jsonl")
	if err := os.WriteFile(path, []byte(`{"host":"g`), 0o640); err != nil {
		t.Fatal(err)
	}
	export(t, New(Config{Path: path}, origin), numbered(0, 3))
	broken, rest, _ := bytes.Cut(readFile(t, path), []byte{'\n'})
	if string(broken) != `{"host":"g` {
		t.Errorf("first line is %s", broken)
	}
	expectPackets(t, rest, 3)
}

// A full file system costs nothing but time: whole lines only, all there in the end.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("mount a small tmpfs: %v: run as root", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	ballast, path := filepath.Join(dir, "ballast"), filepath.Join(dir, "flows.jsonl")
	if err := os.WriteFile(ballast, make([]byte, 200<<10), 0o600); err != nil {
		t.Fatal(err)
	}

	e := New(Config{Path: path}, origin)
	records := numbered(0, 400)
	done, err := e.Export(t.Context(), records)
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "make room") || done == 0 || done == len(records) {
		t.Fatalf("exported %d: %v", done, err)
	}
	expectPackets(t, readFile(t, path), done)
	again, err := e.Export(t.Context(), records[done:])
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("exported %d more: %v", again, err)
	}
	done += again
	expectPackets(t, readFile(t, path), done)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	export(t, e, records[done:])
	expectPackets(t, readFile(t, path), len(records))
}

// The queue holds what a full disk keeps waiting, and what does not fit is counted.
func TestFullDiskInPipeline(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mount a small tmpfs: %v: run as root", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	path := filepath.Join(dir, "flows.jsonl")
	p := pipeline.New(pipeline.Config{FlushTimeout: 100 * time.Millisecond, Backoff: time.Millisecond, MaxBackoff: time.Millisecond},
		[]pipeline.Output{{Exporter: New(Config{Path: path}, origin), Queue: 200}}, slog.New(slog.DiscardHandler), time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	p.Publish(numbered(0, 200))
	await.True(t, "three retries", func() bool { return p.Status()[0].Retries >= 3 })
	p.Publish(numbered(200, 300))
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s := p.Status()[0]
	var lost uint64
	for _, l := range s.Lost {
		lost += l.Count
	}
	if s.Exported+lost != 500 || s.Queued != 0 || !strings.Contains(s.LastError, "no space left") {
		t.Errorf("%+v", s)
	}
	expectPackets(t, readFile(t, path), int(s.Exported))
}

func TestOpenErrorsTellTheRemedy(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct{ path, want string }{
		{filepath.Join(dir, "no", "flows.jsonl"), "make its directory"},
		{dir, "set export.jsonl.path to a file"},
		{"/proc/version/flows", "set export.jsonl.path to a file in a directory"},
	} {
		if _, err := New(Config{Path: tt.path}, origin).Export(t.Context(), nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q in it", tt.path, err, tt.want)
		}
	}
}

// A named pipe: no reader yet, a reader that stops reading, a reader that comes back.
func TestNamedPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	e := New(Config{Path: path}, origin)
	if _, err := e.Export(t.Context(), nil); !errors.Is(err, unix.ENXIO) || !strings.Contains(err.Error(), "start a reader") {
		t.Fatalf("without a reader: %v", err)
	}
	reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()

	// The pipe takes 64 KiB, which ends within a line; the rest has to wait.
	records := numbered(0, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		writer, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer writer.Close()
		await.True(t, "the pipe to be full", func() bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(writer.Fd()), Events: unix.POLLOUT}}, 0)
			return n == 0 && err == nil
		})
	}()
	done, err := e.Export(ctx, records)
	if !errors.Is(err, os.ErrDeadlineExceeded) || done == 0 || done == len(records) {
		t.Fatalf("exported %d to a reader that does not read: %v", done, err)
	}
	text := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(reader)
		text <- b
	}()
	export(t, e, records[done:])
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	expectPackets(t, <-text, len(records))
}

// The reader of standard output ends: the agent lives on and counts. The test
// runs itself as a process whose standard output is that pipe.
func TestClosedStdout(t *testing.T) {
	const inside = "WAYMARK_TEST_CLOSED_STDOUT"
	if os.Getenv(inside) != "" {
		p := pipeline.New(pipeline.Default(), []pipeline.Output{{Exporter: New(Default(), origin), Queue: 1000}}, slog.New(slog.DiscardHandler), time.Now)
		ctx, cancel := context.WithCancel(context.Background())
		p.Publish(numbered(0, 100))
		cancel()
		p.Run(ctx)
		fmt.Fprintf(os.Stderr, "%+v", p.Status())
		os.Exit(0)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	var stderr strings.Builder
	cmd := exec.Command(os.Args[0], "-test.run=^TestClosedStdout$")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdout, cmd.Stderr = w, &stderr
	err = cmd.Run()
	w.Close()
	if err != nil {
		t.Fatalf("the agent did not survive: %v: %s", err, stderr.String())
	}
	for _, want := range []string{"Exported:0", "{Where:queue Reason:gone Count:100}", "broken pipe", "its reader has ended"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("status is %s, want %s in it", stderr.String(), want)
		}
	}
}

func TestStdout(t *testing.T) {
	const inside = "WAYMARK_TEST_STDOUT"
	if os.Getenv(inside) != "" {
		_, err := New(Default(), origin).Export(context.Background(), numbered(0, 100))
		if err != nil {
			fmt.Fprint(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestStdout$")
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	expectPackets(t, out, 100)
}

func BenchmarkExport(b *testing.B) {
	e := New(Config{Path: os.DevNull}, origin)
	records := numbered(0, pipeline.BufferRecords)
	b.ReportAllocs()
	for i := 0; i < b.N; i += len(records) {
		if _, err := e.Export(context.Background(), records); err != nil {
			b.Fatal(err)
		}
	}
}

// TestWords: protocols have names where that is configured, and are read either way.
func TestWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.jsonl")
	e := New(Config{Path: path, Words: true}, flow.Origin{Host: "gw"})
	defer e.Close()
	tcp := flow.Record{Family: 4, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Proto: 6}
	other := tcp
	other.Proto = 200
	if _, err := e.Export(t.Context(), []flow.Record{tcp, other}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if want := []string{`"proto":"tcp"`, `"proto":"200"`}[i]; !strings.Contains(line, want) {
			t.Errorf("%s has not %s", line, want)
		}
		if _, r, err := Decode([]byte(line)); err != nil || r.Proto != []uint8{6, 200}[i] {
			t.Errorf("%s: read as %d, %v", line, r.Proto, err)
		}
	}
	if _, _, err := Decode(bytes.Replace(text, []byte(`"tcp"`), []byte(`"tpc"`), 1)); err == nil {
		t.Error("a protocol that does not exist was read")
	}
}
