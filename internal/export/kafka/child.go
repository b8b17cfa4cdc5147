package kafka

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// child is the program, which runs.
type child struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	said sync.WaitGroup // of what it writes to stderr
	last string         // line of that
}

// passed are the variables that it gets: where the system's authorities are.
var passed = []string{"SSL_CERT_FILE", "SSL_CERT_DIR"}

// start starts the program. It gets no secrets yet, and none of the agent's signals from a terminal.
func start(path string, log *slog.Logger) (*child, error) {
	c := &child{cmd: exec.Command(path)}
	c.cmd.Env = []string{}
	for _, name := range passed {
		if value, ok := os.LookupEnv(name); ok {
			c.cmd.Env = append(c.cmd.Env, name+"="+value)
		}
	}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	sockets, theirs, err := NewSockets()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	c.cmd.ExtraFiles = []*os.File{theirs} // pipe.SocketFile
	stderr, err := c.connect()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		sockets.Close()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	log.Debug("started", "program", path, "pid", c.cmd.Process.Pid)
	c.said.Go(func() { c.listen(stderr, log) })
	go sockets.Give()
	return c, nil
}

func (c *child) connect() (stderr io.Reader, err error) {
	var errs [3]error
	c.in, errs[0] = c.cmd.StdinPipe()
	c.out, errs[1] = c.cmd.StdoutPipe()
	stderr, errs[2] = c.cmd.StderrPipe()
	return stderr, errors.Join(errs[:]...)
}

// listen logs what the program says. It says something only when it crashes.
func (c *child) listen(stderr io.Reader, log *slog.Logger) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if c.last == "" {
			c.last = lines.Text() // the first one says what happened
		}
		log.Warn(Program + ": " + lines.Text())
	}
	_, _ = io.Copy(io.Discard, stderr) // behind a line that is too long
}

func (c *child) kill() { _ = c.cmd.Process.Kill() }

// endTime is how long a program that is to end may take.
const endTime = time.Second

// end closes the pipe, at which the program ends. Where it ended before, end says how.
func (c *child) end(failed error) error {
	_ = c.in.Close()
	gone := errors.Is(failed, io.EOF) || errors.Is(failed, io.ErrUnexpectedEOF) || errors.Is(failed, syscall.EPIPE)
	if failed != nil && !gone {
		c.kill()
	}
	defer time.AfterFunc(endTime, c.kill).Stop()
	_ = c.out.Close()
	c.said.Wait() // until it ends, before Wait closes the pipe
	ended := c.cmd.Wait()
	if !gone || ended == nil {
		return nil
	}
	text := fmt.Sprintf("%s ended: %v", Program, ended)
	if c.last != "" {
		text += ": " + c.last
	}
	return errors.New(text)
}
