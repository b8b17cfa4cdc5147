package l2

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// recorded is what a kernel said of a router, whose ports are in, out0 and out1: messages of netlink, with what they tell of.
func recorded(t *testing.T, file string) (*State, map[uint32]bool) {
	t.Helper()
	f, err := os.Open("testdata/" + file + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := &State{Links: map[uint32]*Link{}, VLANs: map[uint32]map[uint16]Member{}}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		kind, text, _ := strings.Cut(lines.Text(), " ")
		if kind == "#" {
			continue
		}
		m, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		switch kind {
		case "link":
			var l *Link
			if l, err = linkOf(m); err == nil {
				s.Links[l.Index] = l
			}
		case "vlans":
			err = vlansOf(m, s.VLANs)
		case "station":
			var one Station
			var ok bool
			if one, ok, err = stationOf(m); ok {
				s.Stations = append(s.Stations, one)
			}
		default:
			err = errors.New("an unknown kind")
		}
		if err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
	}
	ports := map[uint32]bool{}
	for index, l := range s.Links {
		if l.Name == "in" || strings.HasPrefix(l.Name, "out") && !strings.Contains(l.Name, ".") {
			ports[index] = true
		}
	}
	if len(ports) != 3 {
		t.Fatalf("%d ports in %s", len(ports), file)
	}
	return s, ports
}

// text is a table in words: one line for each entry.
func text(s *State, table Table) string {
	name := func(index uint32) string {
		if l := s.Links[index]; l != nil {
			return l.Name
		}
		return fmt.Sprint(index)
	}
	tag := func(t Tag) string {
		if t.VID == 0 {
			return "untagged"
		}
		return fmt.Sprintf("%#x/%d", t.Proto, t.VID)
	}
	lower := func(l Lower) string {
		if l.Bridge != 0 {
			return fmt.Sprintf("bridge %s VLAN %d %s", name(l.Bridge), l.VID, tag(l.Tag))
		}
		return fmt.Sprintf("port %s %s MTU %d", name(l.Port), tag(l.Tag), l.MTU)
	}
	var lines []string
	for at, up := range table.Arrivals {
		line := fmt.Sprintf("from %s %s: %s", name(at.Port), tag(at.Tag), name(up.Device))
		if up.Scope != up.Device {
			line += " in " + name(up.Scope)
		}
		if up.Bridge != 0 {
			line += fmt.Sprintf(" by bridge %s VLAN %d, sender at %s", name(up.Bridge), up.VID, name(up.Member))
		}
		lines = append(lines, line)
	}
	for index, l := range table.Routes {
		lines = append(lines, fmt.Sprintf("to %s: %s", name(index), lower(l)))
	}
	for at, b := range table.Stations {
		lines = append(lines, fmt.Sprintf("station %x of %s VLAN %d: %s behind %s", at.MAC, name(at.Bridge), at.VID, lower(b.Lower), name(b.Member)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestRecorded: what a kernel said of real VLAN interfaces, bridges and VRFs is resolved to these ways.
func TestRecorded(t *testing.T) {
	for file, want := range wantRecorded {
		t.Run(file, func(t *testing.T) {
			s, ports := recorded(t, file)
			if got := text(s, Resolve(s, ports)); got != strings.TrimSpace(want) {
				t.Errorf("resolved:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// TestUncertain: what leaves open what becomes of a frame is in no table.
func TestUncertain(t *testing.T) {
	links := func(s *State) map[string]*Link {
		all := map[string]*Link{}
		for _, l := range s.Links {
			all[l.Name] = l
		}
		return all
	}
	vid := func(s *State, name string, vid uint16, change func(*Member)) {
		of := s.VLANs[links(s)[name].Index]
		m := of[vid]
		change(&m)
		of[vid] = m
	}
	for _, c := range []struct {
		name, file string
		change     func(*State)
		gone       []string // beginnings of lines that are missing then; all others stay
	}{
		{"a VLAN interface is down", "vlan", func(s *State) { links(s)["in.10"].Up = false }, []string{"from in 0x8100/10:", "to in.10:"}},
		{"a port is down", "vlan", func(s *State) { links(s)["in"].Up = false }, []string{"from in ", "to in."}},
		{"priorities are in tags", "vlan", func(s *State) { links(s)["out0.20"].Maps = true }, []string{"to out0.20:"}},
		{"a VLAN interface belongs to something else", "vlan", func(s *State) { links(s)["in.10"].Master = links(s)["lo"].Index }, []string{"from in 0x8100/10:"}},
		{"a port is blocked", "filter", func(s *State) { links(s)["out0"].Port.Forwards = false }, []string{"from out0 ", "station 020000000101"}},
		{"tunnels of a port", "filter", func(s *State) { links(s)["out0"].Port.Special = true }, []string{"from out0 ", "station 020000000101"}},
		{"several spanning trees", "filter", func(s *State) { links(s)["brv"].Bridge.Trees = true }, []string{"from ", "to brv.", "station "}},
		{"a port is not in the VLAN", "filter", func(s *State) { delete(s.VLANs[links(s)["in"].Index], 10) }, []string{"from in 0x8100/10:", "station 020000000100"}},
		{"the VLAN is blocked at a port", "filter", func(s *State) { vid(s, "out1", 30, func(m *Member) { m.Passes = false }) }, []string{"from out1 0x8100/30:", "station 020000000102"}},
		{"the bridge is not in the VLAN", "filter", func(s *State) { delete(s.VLANs[links(s)["brv"].Index], 20) }, []string{"from out0 untagged:", "from out0 0x8100/20:", "to brv.20:"}},
		{"other tags", "filter", func(s *State) { links(s)["brv"].Bridge.Proto = 0x88a8 }, []string{"from ", "to brv.", "station 020000000100", "station 020000000102"}},
		{"an address that is not the bridge's", "filter", func(s *State) { links(s)["brv.10"].MAC[5]++ }, []string{"from in 0x8100/10:"}},
		{"rules for bridges", "filter", (*State).LeaveBridges, []string{"from ", "to brv", "station "}},
		{"a VRF is down", "vrf", func(s *State) { links(s)["red"].Up = false }, []string{"from in ", "from out0 "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, ports := recorded(t, c.file)
			before := strings.Split(text(s, Resolve(s, ports)), "\n")
			c.change(s)
			after := map[string]bool{}
			for line := range strings.SplitSeq(text(s, Resolve(s, ports)), "\n") {
				after[line] = line != ""
			}
			gone := 0
			for _, line := range before {
				is := slices.ContainsFunc(c.gone, func(start string) bool { return strings.HasPrefix(line, start) })
				if is {
					gone++
				}
				if is == after[line] && after[line] {
					t.Errorf("still there: %s", line)
				}
				if !is && !after[line] {
					t.Errorf("gone: %s", line)
				}
				delete(after, line)
			}
			if gone == 0 {
				t.Errorf("nothing begins with %q", c.gone)
			}
			for line := range maps.Keys(after) {
				if after[line] && !strings.Contains(line, "0x88a8/") && slices.ContainsFunc(c.gone, func(start string) bool { return strings.HasPrefix(line, start) }) {
					t.Errorf("new: %s", line)
				}
			}
		})
	}
}
