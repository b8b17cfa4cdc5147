package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/inband/ioam/ioamtest"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/wire/ioam"
)

// An agent at XDP reads hints and counts them; status and waymark hints show that, and how often they were there.
func TestHints(t *testing.T) {
	if !kernel.XDPHints.Has() {
		t.Skip("programs that are bound to a device: Linux 6.3")
	}
	t.Parallel()
	l := labtest.New(t, lab.Config{Topology: "chain", MTU: 1500})
	h := l.Host("porthos")
	config := quick + transitNode + "  transit: xdp\nhints: {use: always}\n"
	a := start(t, setup{host: h, config: config})
	c := ioamtest.NewCourier(t, l.Host("alpha"), l.Host("beta"))
	trace, err := ioam.NewTrace(123, ioam.HopLimitNodeID|ioam.TransitDelay, 8)
	if err != nil {
		t.Fatal(err)
	}
	header, err := ioam.AppendHeader(nil, 0, trace)
	if err != nil {
		t.Fatal(err)
	}
	const packets = 10
	for range packets {
		c.Carry(t, header)
	}
	type report struct {
		Interfaces []struct {
			Name    string
			RatesOf string `json:"rates_of"`
			Program struct{ Name, Mode string }
			Hints   []struct {
				Hint, Source string
				Offered      bool
				Rate         struct{ Present, Absent uint64 }
			}
		}
	}
	var r report
	await.True(t, "packets with their hash", func() bool {
		r = report{}
		out := must(t, h, program, "hints", "to-athos", "--socket", a.socket, "-o", "json")
		if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Interfaces) != 1 || len(r.Interfaces[0].Hints) != 3 {
			t.Fatalf("%v\n%s", err, out)
		}
		return r.Interfaces[0].Hints[1].Rate.Present >= packets && r.Interfaces[0].Hints[2].Rate.Absent >= packets // that is counted last
	})
	i := r.Interfaces[0]
	if i.Name != "to-athos" || i.RatesOf != "agent" || i.Program.Name != "waymark_xdp" || i.Program.Mode != "native" {
		t.Errorf("%+v", i)
	}
	for k, want := range []string{"time", "hash", "vlan"} {
		if hint := i.Hints[k]; hint.Hint != want || !hint.Offered || hint.Source != "driver" || want != "hash" && (hint.Rate.Present != 0 || hint.Rate.Absent < packets) {
			t.Errorf("%s: %+v", want, hint)
		}
	}
	text := must(t, h, program, "hints", "--socket", a.socket)
	if !strings.Contains(text, "native: waymark_xdp") || !strings.Contains(text, "by the driver") {
		t.Error(text)
	}
	status := must(t, nil, program, "status", "--socket", a.socket)
	for _, want := range []string{"xdp-bound", "HINT", "to-athos"} {
		if !strings.Contains(status, want) {
			t.Errorf("the status lacks %q:\n%s", want, status)
		}
	}
	if doctor := must(t, h, program, "doctor", "to-athos"); !strings.Contains(doctor, "hints at XDP: time (driver), hash (driver), vlan (driver)") {
		t.Error(doctor)
	}
	a.stop(t)
	// Without an agent, the command counts itself.
	text = must(t, h, program, "hints", "to-athos", "--for", "10ms", "--socket", a.socket)
	if !strings.Contains(text, "no program") || strings.Contains(text, "not measured") {
		t.Error(text)
	}
}
