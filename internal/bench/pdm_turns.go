package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// turnTime is how long one lane sends before the next: a neighbour that takes the
// machine for longer takes it from all lanes alike.
const turnTime = 100 * time.Millisecond

// transferring is a connection of a lane from alpha to beta, which sends in its
// turns and stands still else. Sender and receiver share a processor, which is
// then busy all the time and the limit; between two, the queue of veth runs over
// now and then, and TCP's answer to that is all that shows.
type transferring struct {
	lane           *transferLane
	server, client *exec.Cmd
	report         strings.Builder // of the client
	drained        chan struct{}   // the server's output was read
	lasts          time.Duration   // of the client, from its start
	began          time.Time
	active         time.Duration // in its turns
}

// transferInTurns lets every lane send for a time, in turns.
func transferInTurns(ctx context.Context, lanes []*transferLane, each time.Duration) (runs []transferRun, err error) {
	turns := int(each / turnTime)
	lasts := (time.Duration(len(lanes))*each + time.Second).Truncate(time.Second)
	ctx, cancel := context.WithTimeout(ctx, 2*lasts+patience)
	defer cancel()
	var all []*transferring
	defer func() {
		cancel() // ends what an error left behind
		for _, x := range all {
			x.wait()
		}
	}()
	for _, l := range lanes {
		x := &transferring{lane: l, lasts: lasts}
		all = append(all, x)
		if err := x.listen(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", l.mode, err)
		}
	}
	for turn := range turns {
		for i := range all {
			x := all[(turn+i)%len(all)] // nobody is always the first
			if err := x.turn(ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", x.lane.mode, err)
			}
		}
	}
	for _, x := range all {
		run, err := x.end()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", x.lane.mode, err)
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// listen starts the receiver.
func (x *transferring) listen(ctx context.Context) error {
	x.server = exec.CommandContext(ctx, "iperf3", "--server", "--one-off", "--forceflush")
	said, err := x.server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := x.lane.lab.Host("beta").Start(x.server); err != nil {
		return err
	}
	listening := false
	lines := bufio.NewScanner(said)
	for !listening && lines.Scan() {
		listening = strings.Contains(lines.Text(), "listening")
	}
	x.drained = make(chan struct{})
	go func() {
		defer close(x.drained)
		_, _ = io.Copy(io.Discard, said)
	}()
	if !listening {
		return errors.New("iperf3 does not listen")
	}
	return nil
}

// turn sends, for as long as a turn takes.
func (x *transferring) turn(ctx context.Context) error {
	began := time.Now()
	if x.client == nil {
		processor := strconv.Itoa(min(senderProcessor, runtime.NumCPU()-1))
		client := exec.CommandContext(ctx, "iperf3", "--client", x.lane.lab.Host("beta").Addr6().String(), "--json",
			"--time", strconv.Itoa(int(x.lasts/time.Second)), "--affinity", processor+","+processor)
		client.Stdout = &x.report
		if err := x.lane.lab.Host("alpha").Start(client); err != nil {
			return err
		}
		x.client, x.began = client, began
	} else if err := x.client.Process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("continuing iperf3: %w", err)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(turnTime):
	}
	if err := x.client.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stopping iperf3: %w", err)
	}
	x.active += time.Since(began)
	return nil
}

// end lets the client end, whose time has passed by then.
func (x *transferring) end() (run transferRun, err error) {
	time.Sleep(time.Until(x.began.Add(x.lasts)))
	if err := x.client.Process.Signal(syscall.SIGCONT); err != nil {
		return run, fmt.Errorf("continuing iperf3: %w", err)
	}
	if err := x.wait(); err != nil {
		return run, fmt.Errorf("iperf3: %w: %s", err, x.report.String())
	}
	var reported struct {
		End struct {
			Sent struct {
				Retransmits float64 `json:"retransmits"`
			} `json:"sum_sent"`
			Received struct {
				Bytes float64 `json:"bytes"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(x.report.String()), &reported); err != nil {
		return run, fmt.Errorf("the report of iperf3: %w", err)
	}
	gigabytes := reported.End.Received.Bytes / 1e9
	if gigabytes == 0 {
		return run, errors.New("iperf3 received nothing")
	}
	var used time.Duration
	for _, c := range []*exec.Cmd{x.client, x.server} {
		used += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	}
	return transferRun{
		rate: 8 * gigabytes / x.active.Seconds(), retransmits: reported.End.Sent.Retransmits,
		processor: used.Seconds() / gigabytes,
	}, nil
}

// wait ends with both processes; a second call does nothing.
func (x *transferring) wait() error {
	var errs []error
	for _, c := range []*exec.Cmd{x.client, x.server} {
		if c == nil || c.Process == nil || c.ProcessState != nil {
			continue
		}
		if c == x.server {
			<-x.drained
		}
		errs = append(errs, c.Wait())
	}
	return errors.Join(errs...)
}
