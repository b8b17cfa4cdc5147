package capture

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"github.com/waymark-net/waymark/internal/capfile"
	"github.com/waymark-net/waymark/internal/flow"
)

// Summary tells of a file what is not in its flow records.
type Summary struct {
	Frames     uint64           // read
	Uncounted  []flow.Uncounted // frames in no flow
	Incomplete []flow.Uncounted // frames in a flow of which something could not be learned
	Interfaces map[flow.Iface]string
}

// ReadFile counts the frames of a pcap or pcapng file into flows, as one
// interval, and calls emit for every flow. Of cfg it uses tunnels, sampling and
// MaxEntries. IfIndex is the number of the interface in the file. Where that does
// not tell the direction, it is ingress.
//
// What was read before an error is emitted, and reported by the summary, all the
// same. Errors wrap *capfile.Error and name file, frame and byte.
func ReadFile(path string, cfg Config, emit func(*flow.Record)) (Summary, error) {
	f, err := os.Open(path)
	if err != nil {
		return Summary{}, fmt.Errorf("opening the capture: %w", err)
	}
	defer f.Close()
	s, err := Read(f, cfg, emit)
	if err != nil {
		return s, fmt.Errorf("reading %s: %w%s", path, err, remedy(err))
	}
	return s, nil
}

// remedy is what a user can do about a bad file.
func remedy(err error) string {
	switch {
	case errors.Is(err, capfile.ErrFormat):
		return ": capture with tcpdump -w, or save as pcapng"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return ": the file is truncated; everything before was counted"
	case errors.Is(err, errLinkType):
		return ": capture on an Ethernet or IP interface, or on any"
	}
	return ""
}

// Read is ReadFile for what is open already.
func Read(in io.Reader, cfg Config, emit func(*flow.Record)) (Summary, error) {
	r, err := capfile.NewReader(in)
	if err != nil {
		return Summary{}, err
	}
	cfg = cfg.withDefaults()
	m := newMeter(cfg, rand.Uint32)
	s := Summary{Interfaces: map[flow.Iface]string{}}
	err = m.addFile(r, &s)
	s.Uncounted, s.Incomplete = m.uncounted(counted+1, firstCounted), m.uncounted(firstCounted, reasons)

	name := func(i flow.Iface) (name, netns string) { return s.Interfaces[i], "" }
	t := flow.NewTable(flow.TableConfig{MaxFlows: int(cfg.MaxEntries)}, name, flow.TableOutput{Expired: emit})
	m.table.drain(t.Merge)
	t.Flush()
	return s, err
}

// addFile counts all frames up to the end of the file or an error.
func (m *meter) addFile(r *capfile.Reader, s *Summary) error {
	for {
		c, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		f, at, err := fromFile(&c)
		if err != nil {
			return r.At(err)
		}
		if _, known := s.Interfaces[at.iface]; !known {
			s.Interfaces[at.iface] = r.Interface(c.Iface)
		}
		var now int64
		if !c.Time.IsZero() {
			now = c.Time.UnixNano()
		}
		s.Frames++
		m.add(&f, at, now)
	}
}
