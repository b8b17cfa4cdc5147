package ioam

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	wire "github.com/waymark-net/waymark/wire/ioam"
)

// insertionsInTshark shows that tshark reads the traces that are inserted, and finds nothing wrong.
func (h *host) insertionsInTshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skipf("needs tshark: %v", err)
	}
	// The header of a file with Ethernet frames, in big-endian order.
	file := binary.BigEndian.AppendUint32(nil, 0xa1b2c3d4)
	file = append(file, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1)
	random, want := rand.New(rand.NewPCG(9, 9)), []string{}
	h.inside(t, func() {
		for range 60 {
			header, line := h.randomTraces(t, random)
			header[0] = 17
			frame := framed(header)
			file = append(file, make([]byte, 8)...)
			file = binary.BigEndian.AppendUint32(file, uint32(len(frame)))
			file = binary.BigEndian.AppendUint32(file, uint32(len(frame)))
			file, want = append(file, frame...), append(want, line)
		}
	})
	name := filepath.Join(t.TempDir(), "inserted.pcap")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-n", "-r", name, "-T", "fields", "-e", "_ws.expert.message"}
	for _, field := range []string{"ns", "type", "remlen", "node.id", "node.hlim", "node.eif", "node.tss"} {
		args = append(args, "-e", "ipv6.opt.ioam.trace."+field)
	}
	out, err := exec.Command(tshark, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(got) != len(want) {
		t.Fatalf("tshark reads %d packets, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("packet %d\ntshark %q\n  want %q", i, got[i], want[i])
		}
	}
}

// randomTraces inserts some traces, and returns the header and what tshark shall say of it.
func (h *host) randomTraces(t *testing.T, random *rand.Rand) ([]byte, string) {
	t.Helper()
	in := insertionTo("::/0")
	for range 1 + random.IntN(5) {
		typ := wire.HopLimitNodeID | wire.InterfaceIDs | wire.TimestampSeconds |
			wire.TraceType(random.Uint32())&wire.DefinedFields&^(wire.HopLimitNodeIDWide|wire.InterfaceIDsWide)
		make, nodes := wire.NewTrace, 1+random.IntN(2)
		if random.IntN(4) == 0 { // where more may follow, tshark takes the data for free space
			make, nodes = wire.NewIncrementalTrace, 1
		}
		tr, err := make(spaceA, typ, nodes*typ.NodeSize(0))
		if err != nil {
			t.Fatal(err)
		}
		in.Options = append(in.Options, tr)
	}
	if err := h.node.Apply(inserting(t, in)); err != nil {
		t.Fatal(err)
	}
	out, verdict := h.insert(t, datagram(hostB, 1, 2), 0, 0)
	if verdict != written {
		t.Fatalf("verdict %d", verdict)
	}
	header := out[gapAt : gapAt+8*(int(out[gapAt+1])+1)]
	found, err := wire.FindInHeader(0, header)
	if err != nil {
		t.Fatal(err)
	}
	columns := make([][]string, 7)
	for _, o := range found {
		body, err := o.Decode()
		if err != nil {
			t.Fatal(err)
		}
		tr := body.(*wire.Trace)
		hops, err := tr.Hops()
		if err != nil || len(hops) != 1 {
			t.Fatalf("%d hops, %v", len(hops), err)
		}
		for i, v := range []any{
			tr.Namespace, fmt.Sprintf("0x%06x", uint32(tr.Type)), tr.Remaining, fmt.Sprintf("0x%06x", hops[0].NodeID), hops[0].HopLimit,
			fmt.Sprintf("0x%04x", hops[0].Egress), fmt.Sprintf("0x%08x", hops[0].Seconds),
		} {
			columns[i] = append(columns[i], fmt.Sprint(v))
		}
	}
	line := ""
	for _, c := range columns {
		line += "\t" + strings.Join(c, ",")
	}
	return header, line
}
