package lldp

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

func tlv(kind int, value ...byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(kind<<9|len(value))), value...)
}

func text(kind int, lead []byte, s string) []byte { return tlv(kind, append(lead, s...)...) }

func frame(parts ...[]byte) []byte {
	out := []byte{0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 3, 3, EtherType >> 8, EtherType & 0xff}
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

var (
	chassis = tlv(chassisTLV, subtypeMAC, 2, 0, 0, 0, 3, 3)
	port    = text(portTLV, []byte{5}, "ge-0/0/1")
	ttl     = tlv(ttlTLV, 0, 120)
	end     = tlv(endTLV)
	full    = frame(chassis, port, ttl, text(systemNameTLV, nil, "switch1"), tlv(managementTLV, 5, 1, 192, 0, 2, 9, 2, 0, 0, 0, 1, 0), tlv(127, 0, 0x80, 0xc2, 1, 0, 1), end)
)

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		frame []byte
		want  Frame
		err   string
	}{
		"full": {frame: full, want: Frame{
			Chassis: "02:00:00:00:03:03", MAC: "02:00:00:00:03:03", Port: "ge-0/0/1", Name: "switch1", Addr: netip.MustParseAddr("192.0.2.9"), TTL: 2 * time.Minute,
		}},
		"padding":       {frame: append(frame(chassis, port, ttl, end), make([]byte, 30)...), want: Frame{Chassis: "02:00:00:00:03:03", MAC: "02:00:00:00:03:03", Port: "ge-0/0/1", TTL: 2 * time.Minute}},
		"names":         {frame: frame(text(chassisTLV, []byte{7}, "\x1b[31mred\n"), tlv(portTLV, subtypePortMAC, 2, 0, 0, 0, 3, 4), ttl, text(portTextTLV, nil, "uplink"), end), want: Frame{Chassis: "[31mred", Port: "uplink", TTL: 2 * time.Minute}},
		"leaves":        {frame: frame(chassis, port, tlv(ttlTLV, 0, 0), end), want: Frame{Chassis: "02:00:00:00:03:03", MAC: "02:00:00:00:03:03", Port: "ge-0/0/1"}},
		"address":       {frame: frame(tlv(chassisTLV, subtypeNetwork, 1, 192, 0, 2, 1), port, ttl, end), want: Frame{Chassis: "192.0.2.1", Port: "ge-0/0/1", TTL: 2 * time.Minute}},
		"another type":  {frame: append(make([]byte, 12), 0x08, 0x00, 0), err: "not a frame of LLDP"},
		"order":         {frame: frame(port, chassis, ttl, end), err: "part 1 is of type 2"},
		"twice":         {frame: frame(chassis, port, ttl, ttl, end), err: "part 4 is of type 3"},
		"early end":     {frame: frame(chassis, end), err: "ends before"},
		"no end":        {frame: frame(chassis, port, ttl), err: "truncated"},
		"empty chassis": {frame: frame(tlv(chassisTLV, 4), port, ttl, end), err: "length of the chassis"},
	} {
		got, err := Parse(c.frame)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", name, err, c.err)
			}
			continue
		}
		if diff := cmp.Diff(c.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	for n := range full {
		if _, err := Parse(full[:n]); err == nil {
			t.Errorf("cut to %d bytes, it is accepted", n)
		}
	}
}

// TestParseAsTshark: another program reads the same of the same frame.
func TestParseAsTshark(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed")
	}
	head := make([]byte, 40)
	binary.LittleEndian.PutUint32(head, 0xa1b2c3d4)
	binary.LittleEndian.PutUint16(head[4:], 2)
	binary.LittleEndian.PutUint16(head[6:], 4)
	binary.LittleEndian.PutUint32(head[16:], 65535)
	binary.LittleEndian.PutUint32(head[20:], 1)
	binary.LittleEndian.PutUint32(head[32:], uint32(len(full)))
	binary.LittleEndian.PutUint32(head[36:], uint32(len(full)))
	file := filepath.Join(t.TempDir(), "lldp.pcap")
	if err := os.WriteFile(file, append(head, full...), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("tshark", "-r", file, "-T", "fields", "-e", "lldp.chassis.id.mac", "-e", "lldp.port.id", "-e", "lldp.time_to_live",
		"-e", "lldp.tlv.system.name", "-e", "lldp.mgn.addr.ip4").Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse(full)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%s\t%s\t%.0f\t%s\t%s\n", f.MAC, f.Port, f.TTL.Seconds(), f.Name, f.Addr); string(out) != want {
		t.Errorf("tshark %q, here %q", out, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(full)
	f.Add(frame(tlv(chassisTLV, subtypeNetwork, 2, 1), port, ttl, end))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Parse(b)
		if err != nil {
			return
		}
		for _, s := range []string{got.Chassis, got.Port, got.Name} {
			if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Errorf("control characters in %q", s)
			}
		}
	})
}

// TestReceive: announcements arrive on an interface that joined, until they expire or are taken back; what is no announcement
// is counted.
func TestReceive(t *testing.T) {
	l := labtest.New(t, lab.Config{Topology: "pair"})
	alpha, beta := l.Host("alpha"), l.Host("beta")
	now := time.Now()
	var r *Receiver
	var index uint32
	if err := alpha.Do(func() (err error) {
		if r, err = Open(func() time.Time { return now }); err != nil {
			return err
		}
		index, err = ifindex("to-beta")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r.Join([]uint32{index})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	send := func(frame []byte) {
		t.Helper()
		if err := beta.Do(func() error { return sendFrame("to-alpha", frame) }); err != nil {
			t.Fatal(err)
		}
	}
	send(full)
	await.True(t, "an announcement", func() bool { return len(r.Neighbours()) == 1 })
	if n := r.Neighbours()[0]; n.Name != "switch1" || n.IfIndex != index {
		t.Errorf("%+v", n)
	}
	before, _ := r.Changes()
	send(full)
	send(frame(chassis, end))
	await.True(t, "a frame that is no announcement", func() bool { _, invalid := r.Changes(); return invalid == 1 })
	if after, _ := r.Changes(); after != before {
		t.Error("the same announcement is a change")
	}
	send(frame(chassis, port, tlv(ttlTLV, 0, 0), end))
	await.True(t, "the neighbour to leave", func() bool { return len(r.Neighbours()) == 0 })
	send(full)
	await.True(t, "an announcement", func() bool { return len(r.Neighbours()) == 1 })
	r.now = func() time.Time { return now.Add(121 * time.Second) }
	if list := r.Neighbours(); len(list) != 0 {
		t.Errorf("after its time to live: %v", list)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestFlood: announcements of many take a bounded space, and the one that expires first makes room.
func TestFlood(t *testing.T) {
	now := time.Now()
	r := &Receiver{now: func() time.Time { return now }, all: map[key]Neighbour{}}
	r.receive(2, frame(chassis, port, tlv(ttlTLV, 0, 1), end))
	for i := range 2 * maxNeighbours {
		r.receive(2, frame(text(chassisTLV, []byte{7}, fmt.Sprint("x", i)), port, ttl, end))
	}
	if len(r.all) != maxNeighbours {
		t.Errorf("%d neighbours", len(r.all))
	}
	if _, ok := r.all[key{2, "02:00:00:00:03:03", "ge-0/0/1"}]; ok {
		t.Error("the one that expires first is there")
	}
}

func ifindex(name string) (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, r)
	}
	if err != nil {
		return 0, err
	}
	return r.Uint32(), nil
}

func sendFrame(name string, frame []byte) error {
	index, err := ifindex(name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: int(index)})
}
