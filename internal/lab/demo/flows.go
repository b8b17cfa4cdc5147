package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
)

// flows: five hosts in a row, agents on both ends and in the middle.
func (d *demo) flows(ctx context.Context) (err error) {
	d.say("Five hosts in a row: alpha – athos – porthos – aramis – beta")
	l, err := lab.Up(lab.Config{Topology: "chain", Prefix: d.Prefix})
	if err != nil {
		return err
	}
	defer func() {
		err = interrupted(ctx, err)
		_, stopErr := d.stop()
		err = errors.Join(err, stopErr, l.Down())
	}()
	for _, name := range []string{"alpha", "porthos", "beta"} {
		more := ""
		if name == "beta" {
			more = ruled
		}
		if err := d.start(ctx, l.Host(name), more); err != nil {
			return err
		}
	}
	fmt.Fprintln(d.Out, "Agents run on alpha, porthos and beta.")

	kinds := "a web-like service, a download, iperf3, a stream, pings"
	if _, err := exec.LookPath("iperf3"); err != nil {
		kinds = "a web-like service, a download, a stream, pings (and iperf3, were it installed)"
	}
	d.say("Traffic from alpha to beta: %s", kinds)
	truth, err := d.traffic(ctx, l)
	if err != nil {
		return err
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	porthos := d.agents[1]
	d.say("What the router in the middle saw")
	if err := d.show(ctx, porthos, "flows", "--by", "conversation", "iface to-athos", "--limit", "10"); err != nil {
		return err
	}
	d.say("Accuracy: the probe compared with the interfaces' own counters")
	for _, a := range d.agents {
		if err := d.coverage(ctx, a); err != nil {
			return err
		}
	}
	d.say("And compared with what the programs sent")
	if err := d.compare(ctx, truth); err != nil {
		return err
	}
	if err := d.flood(ctx, l); err != nil {
		return err
	}
	took, err := d.stop()
	if err != nil {
		return err
	}
	d.say("Agents stopped, drained and detached in %d ms; the lab is taken down", took.Milliseconds())
	return nil
}

// sent is a stream of traffic as its sender knows it.
type sent struct {
	what   string
	filter string // finds its flow on the sending host
	bytes  uint64 // payload
	most   uint64 // payload that it may be at most, where it is not exact
}

// amount is what the sender says: a number, or between which two.
func (s *sent) amount() string {
	if s.most > s.bytes {
		return fmt.Sprintf("%d to %d", s.bytes, s.most)
	}
	return fmt.Sprint(s.bytes)
}

// off is how far a count is from the truth.
func (s *sent) off(counted uint64) int64 {
	return int64(counted) - int64(min(max(counted, s.bytes), max(s.bytes, s.most)))
}

// traffic runs everything at once and returns the truth about what has one.
func (d *demo) traffic(ctx context.Context, l *lab.Lab) ([]sent, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	alpha, beta := l.Host("alpha"), l.Host("beta")
	service, err := traffic.Serve(ctx, beta, traffic.ServiceConfig{
		Network: "tcp", Listen: netip.AddrPortFrom(beta.Addr6(), 8080), Think: 20 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	defer service.Close()

	var bulk traffic.BulkResult
	var stream traffic.DatagramResult
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error {
		_, err := traffic.Request(ctx, alpha, traffic.RequestConfig{
			Network: "tcp", To: service.Addr(), Clients: 4, Requests: 25, RequestSize: 200, ResponseSize: 5000,
			Interval: 100 * time.Millisecond,
		})
		return err
	})
	all.Go(func() (err error) {
		bulk, err = traffic.Bulk(ctx, alpha, beta, traffic.BulkConfig{
			To: netip.AddrPortFrom(beta.Addr4(), 9000), Bytes: 50_000_000,
		})
		return err
	})
	all.Go(func() (err error) {
		stream, err = traffic.Datagrams(ctx, alpha, beta, traffic.DatagramConfig{
			To: netip.AddrPortFrom(beta.Addr6(), 9001), Count: 1000, Size: 4000, Interval: 2 * time.Millisecond,
		})
		return err
	})
	for _, to := range []netip.Addr{beta.Addr4(), beta.Addr6()} {
		all.Go(func() error {
			_, err := traffic.Echo(ctx, alpha, traffic.EchoConfig{To: to, Count: 10, Size: 56, ID: 77, Interval: 100 * time.Millisecond})
			return err
		})
	}
	var truth []sent
	if _, err := exec.LookPath("iperf3"); err == nil {
		all.Go(func() error {
			iperf, err := iperf3(ctx, alpha, beta)
			truth = []sent{iperf}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	return append(truth, []sent{
		{
			what:   "TCP download, IPv4",
			filter: fmt.Sprintf("proto tcp and direction egress and sport %d and dport %d", bulk.From.Port(), bulk.Addr.Port()),
			bytes:  bulk.Sender.BytesSent,
		},
		{
			what:   "UDP stream of 4000-byte datagrams, IPv6, in fragments",
			filter: fmt.Sprintf("proto udp and direction egress and sport %d", stream.From[0].Port()),
			bytes:  stream.SentBytes,
		},
	}...), nil
}

// settle waits for two intervals to end, so that everything sent is counted.
func (d *demo) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for _, a := range d.agents {
		s, err := a.client.Status(ctx)
		if err != nil {
			return err
		}
		for until := s.Drain.Count + 2; s.Drain.Count < until; {
			select {
			case <-ctx.Done():
				return fmt.Errorf("agent on %s does not drain: %w", a.host.Name, ctx.Err())
			case <-time.After(100 * time.Millisecond):
			}
			if s, err = a.client.Status(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// coverage compares counted packets with those of the interfaces.
func (d *demo) coverage(ctx context.Context, a *agent) error {
	s, err := a.client.Status(ctx)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(d.Out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%s\tdirection\tframes\tof the interface\tbytes\tof the interface\tcoverage\t\n", a.host.Name)
	for _, i := range s.Interfaces {
		frames, bytes := i.Frames, i.FrameBytes
		for _, r := range i.Uncounted {
			frames, bytes = frames+r.Frames, bytes+r.Bytes
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%.2f %%\t\n",
			i.Iface, i.Direction, frames, i.IfacePackets, bytes, i.IfaceBytes, 100*i.Coverage)
	}
	return t.Flush()
}

// compare holds what alpha's agent counted against what was sent.
func (d *demo) compare(ctx context.Context, truth []sent) error {
	t := tabwriter.NewWriter(d.Out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "payload of\tthe program says\tcounted\tdifference\t")
	var wrong error
	for _, s := range truth {
		answer, err := d.agents[0].client.Flows(ctx, api.Request{Filter: s.filter, By: "flow"})
		if err != nil {
			return err
		}
		var counted uint64
		for _, r := range answer.Rows {
			counted += r.PayloadBytes
		}
		off := s.off(counted)
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t\n", s.what, s.amount(), counted, off)
		if off != 0 {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %d bytes of payload were sent and %d counted", s.what, s.bytes, counted))
		}
	}
	return errors.Join(t.Flush(), wrong)
}
