package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/obs"
)

func allTools(self string) []tool {
	return []tool{
		{name: "waymark, eBPF", start: agentStarter(self, "ebpf")},
		{name: "waymark, AF_PACKET", start: agentStarter(self, "afpacket")},
		{name: "softflowd", needs: "softflowd", start: startSoftflowd},
		{name: "tcpdump", needs: "tcpdump", start: startTcpdump},
	}
}

const (
	// captureBuffer is what the tools on libpcap get, in bytes: as much as the
	// ring of the AF_PACKET probe.
	captureBuffer = 16 << 20
	// settled is how long a tool's numbers must stand still to be the last ones.
	settled = time.Second
)

// collector is a socket in the namespace of the lanes, for flow records that
// nobody reads.
func collector(s *space) (conn net.PacketConn, err error) {
	err = s.do(probeProcessor, func() error {
		conn, err = net.ListenPacket("udp4", "127.0.0.1:0")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening a socket for records: %w", err)
	}
	return conn, nil
}

// agentRun is the whole agent, exporting IPFIX.
type agentRun struct {
	*process
	iface  string
	client *api.Client
	sink   net.PacketConn
}

func agentStarter(self, probe string) func(context.Context, *space, string, string, probesRun) (running, error) {
	return func(ctx context.Context, s *space, iface, dir string, run probesRun) (running, error) {
		sink, err := collector(s)
		if err != nil {
			return nil, err
		}
		socket := filepath.Join(dir, probe+".sock")
		a := &agentRun{iface: iface, client: api.NewClient(socket), sink: sink}
		// Room for all flows on the one processor that receives.
		entries := max(1<<19, slotsPerFlow*run.flows)
		text := fmt.Sprintf("interfaces: [%s]\nprobe: %s\nflow: {max_entries: %d, scan_interval: %s}\napi: {socket: %s}\nhistory: {path: %s}\n"+
			"export: [{ipfix: {collector: \"udp://%s\", queue: %d}}]\n", iface, probe, entries, run.scan, socket, filepath.Join(dir, probe+"-history"), sink.LocalAddr(), max(1<<16, 2*run.flows))
		file := filepath.Join(dir, probe+".yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, errors.Join(err, sink.Close())
		}
		a.process, err = startProcess(s, filepath.Join(dir, probe+".log"), func() (bool, error) {
			status, err := a.client.Status(ctx)
			return err == nil && attached(status), nil
		}, self, "run", "--config", file)
		if err != nil {
			return nil, errors.Join(err, sink.Close())
		}
		return a, nil
	}
}

func attached(s obs.Status) bool {
	for _, h := range s.Hooks {
		if h.State != "attached" {
			return false
		}
	}
	return len(s.Hooks) > 0
}

// finish waits until two drains found nothing new.
func (a *agentRun) finish(ctx context.Context, n uint64) (summary, error) {
	defer a.sink.Close()
	var out summary
	var asked error
	if n > 0 {
		var first uint64
		asked = a.poll(ctx, 250*time.Millisecond, func() (bool, error) {
			status, err := a.client.Status(ctx)
			if err != nil {
				return false, err
			}
			if first == 0 {
				first = status.Drain.Count
			}
			out.counted, out.kernelMem = ingress(status), status.Table.MemoryBytes
			out.records = status.Drain.Records + status.Table.Live // these when it ends
			return status.Drain.Count >= first+2, nil
		})
	}
	var err error
	out.process, out.memory, err = a.end(syscall.SIGTERM)
	return out, errors.Join(asked, err)
}

// ingress is how many packets the agent counted, in flows or by reason.
func ingress(s obs.Status) (n uint64) {
	for _, i := range s.Interfaces {
		if i.Direction != "ingress" {
			continue
		}
		n += i.Packets
		for _, u := range i.Uncounted {
			n += u.Packets
		}
	}
	return n
}

// softflowdRun exports IPFIX as the agent does.
type softflowdRun struct {
	*process
	control string
	sink    net.PacketConn
}

func startSoftflowd(_ context.Context, s *space, iface, dir string, run probesRun) (running, error) {
	sink, err := collector(s)
	if err != nil {
		return nil, err
	}
	control := filepath.Join(dir, "softflowd.ctl")
	p, err := startProcess(s, filepath.Join(dir, "softflowd.log"), func() (bool, error) {
		_, err := os.Stat(control)
		return err == nil, nil
	}, "softflowd", "-d", "-i", iface, "-n", sink.LocalAddr().String(), "-v", "10", "-m", strconv.Itoa(max(8192, 2*run.flows)),
		"-B", strconv.Itoa(captureBuffer), "-c", control, "-p", filepath.Join(dir, "softflowd.pid"))
	if err != nil {
		return nil, errors.Join(err, sink.Close())
	}
	return &softflowdRun{p, control, sink}, nil
}

var (
	softflowdPackets = regexp.MustCompile(`Packets processed: (\d+)`)
	softflowdFlows   = regexp.MustCompile(`Number of active flows: (\d+)`)
	softflowdExpired = regexp.MustCompile(`Flows expired: (\d+)`)
)

func (s *softflowdRun) finish(ctx context.Context, n uint64) (summary, error) {
	defer s.sink.Close()
	var out summary
	var asked error
	if n > 0 {
		last := ^uint64(0)
		asked = s.poll(ctx, settled, func() (bool, error) {
			text, err := exec.CommandContext(ctx, "softflowctl", "-c", s.control, "statistics").CombinedOutput()
			if err != nil {
				return false, fmt.Errorf("softflowctl: %w: %s", err, text)
			}
			out.counted = match(softflowdPackets, string(text))
			out.records = match(softflowdFlows, string(text)) + match(softflowdExpired, string(text))
			same := out.counted == last
			last = out.counted
			return same, nil
		})
	}
	var err error
	out.process, out.memory, err = s.end(syscall.SIGTERM)
	return out, errors.Join(asked, err)
}

// tcpdumpRun only copies packets: what every probe on AF_PACKET pays at least.
type tcpdumpRun struct{ *process }

func startTcpdump(_ context.Context, s *space, iface, dir string, _ probesRun) (running, error) {
	log := filepath.Join(dir, "tcpdump.log")
	p, err := startProcess(s, log, func() (bool, error) {
		text, err := os.ReadFile(log)
		return strings.Contains(string(text), "listening on"), err
	}, "tcpdump", "-n", "-i", iface, "-s", "96", "-B", strconv.Itoa(captureBuffer>>10), "-w", "/dev/null")
	if err != nil {
		return nil, err
	}
	return &tcpdumpRun{p}, nil
}

var tcpdumpCaptured = regexp.MustCompile(`(\d+) packets captured`)

func (r *tcpdumpRun) finish(ctx context.Context, n uint64) (summary, error) {
	var out summary
	var asked error
	if n > 0 {
		// It tells nothing while it runs; when it waits it has read all.
		last := r.ready
		asked = r.poll(ctx, settled, func() (bool, error) {
			used, err := r.used()
			same := used == last
			last = used
			return same, err
		})
	}
	var err error
	out.process, out.memory, err = r.end(syscall.SIGINT)
	text, errRead := os.ReadFile(r.stderr)
	out.counted = match(tcpdumpCaptured, string(text))
	return out, errors.Join(asked, err, errRead)
}

// match is the number in a text, 0 where there is none.
func match(what *regexp.Regexp, text string) uint64 {
	found := what.FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	n, err := strconv.ParseUint(found[1], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
