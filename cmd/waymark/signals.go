package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// withSignals ends the context at the first SIGTERM or SIGINT, and the process
// at the second. release gives the signals back.
func withSignals(parent context.Context, log *slog.Logger) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	released := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			log.Info("stopping: draining, exporting, detaching", "signal", s.String())
			notify(log, "STOPPING=1")
			cancel()
		case <-released:
			return
		}
		select {
		case <-signals:
			log.Error("second signal: flows of the last interval may be lost")
			os.Exit(exitFailure)
		case <-released:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(released)
		cancel()
	}
}

// onHangup calls reopen at every SIGHUP until ctx ends.
func onHangup(ctx context.Context, log *slog.Logger, reopen func()) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		select {
		case <-hangup:
			log.Info("opening files anew")
			reopen()
		case <-ctx.Done():
			return
		}
	}
}
