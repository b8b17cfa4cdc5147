package gate

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/test/await"
)

// TestStaleMaps: maps that an agent has left are of use while one of its programs is on an interface. Else they can be removed.
func TestStaleMaps(t *testing.T) {
	o := newOlder(t, datapathtest.NewVeth(t), ebpf.AttachXDP)
	for _, attached := range []bool{true, false} {
		if !attached { // the link ends, and what is no link stays
			l, err := link.LoadPinnedLink(o.linkPin(t), nil)
			if err == nil {
				err = errors.Join(l.Unpin(), l.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var text await.Text
		log := slog.New(slog.NewTextHandler(&text, nil))
		cfg := small()
		cfg.Pins, cfg.Keep = o.pins, true
		g := New(cfg, log)
		dp := datapath.New(datapath.Config{MaxEntries: 64, Stages: []*datapath.Stage{g.Stage(func(string) bool { return true })}}, log)
		if err := dp.Open(); err != nil {
			t.Fatalf("%+v", err)
		}
		if !g.Formers() || g.InEffect() != attached {
			t.Errorf("attached %t: formers %t, in effect %t", attached, g.Formers(), g.InEffect())
		}
		if !attached {
			g.DropFormers()
			if left, err := filepath.Glob(o.pins + "/maps-*"); err != nil || len(left) > 0 || g.Formers() || strings.Count(text.String(), "removed counters") != 2 {
				t.Errorf("left: %v, %v\n%s", left, err, text.String())
			}
		}
		dp.Close()
	}
}

func (o *older) linkPin(t *testing.T) string {
	t.Helper()
	names, err := filepath.Glob(o.pins + "/link-xdp-*")
	if err != nil || len(names) != 1 {
		t.Fatalf("%v, %v", names, err)
	}
	return names[0]
}
