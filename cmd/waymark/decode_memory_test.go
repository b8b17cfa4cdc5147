package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/pdm"

	"github.com/waymark-net/waymark/internal/command"
)

// A capture of more 5-tuples than can be tracked takes bounded memory, and what
// was not tracked is reported.
func TestDecodeBoundsMemory(t *testing.T) {
	const flows, bound = 100_000, 400 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // as it is shipped: tests collect garbage rarely
	c := newCapture(t)
	frame := marked(t, packet.Eth().IPv6("2001:db8::1", "2001:db8::2").UDP(1000, 53), pdm.Option{})
	for i := range flows {
		binary.BigEndian.PutUint32(frame[14+8+12:], uint32(i))
		c.add(time.Duration(i)*time.Microsecond, frame)
	}
	name := c.file()
	c.buf.Reset()
	for _, show := range []string{"flows", "packets"} {
		peak, stop := watchHeap()
		out, in := io.Pipe()
		var stderr strings.Builder
		go func() {
			code := execute([]string{"decode", "-o", "jsonl", "--show", show, name}, nil, in, &stderr)
			in.CloseWithError(map[int]error{command.ExitOK: io.EOF}[code])
		}()
		shown, totals := 0, map[string]any{}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if !strings.HasPrefix(lines.Text(), `{"type":"totals"`) {
				shown++
			} else if err := json.Unmarshal(lines.Bytes(), &totals); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		if reported := strings.Contains(stderr.String(), " not shown: the table of flows was full"); reported != (show == "flows") {
			t.Errorf("--show %s: %q", show, stderr.String())
		}
		dropped, _ := totals["flows_dropped"].(float64)
		switch {
		case show == "flows" && (shown+int(dropped) != flows || dropped == 0 || totals["packets_dropped"] != dropped):
			t.Errorf("%d flows are shown of %d; %v", shown, flows, totals)
		case show == "packets" && shown != flows:
			t.Errorf("%d packets are shown of %d", shown, flows)
		}
		t.Logf("--show %s: %d shown, heap %d MB at most", show, shown, *peak>>20)
		if *peak > bound {
			t.Errorf("--show %s takes %d MB", show, *peak>>20)
		}
	}
}

// watchHeap records the largest heap until stop.
func watchHeap() (peak *uint64, stop func()) {
	runtime.GC()
	peak = new(uint64)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			*peak = max(*peak, m.HeapAlloc)
			select {
			case <-tick.C:
			case <-end:
				return
			}
		}
	}()
	return peak, func() { close(end); <-ended }
}
