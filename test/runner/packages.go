package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// packages are those that have tests.
type packages struct {
	// prefix is the module's path, which no reader needs on each line.
	prefix string
	// machines are the packages whose tests boot emulated machines, kernel those that can reach network namespaces or
	// BPF, concurrent those of the others that start goroutines, plain the rest.
	plain, concurrent, kernel, machines []string
}

// bootsMachines is the import that makes the difference.
const bootsMachines = "github.com/waymark-net/waymark/test/vm"

// reachesKernel are the imports that do.
var reachesKernel = map[string]bool{
	"github.com/cilium/ebpf":         true,
	"github.com/vishvananda/netlink": true,
	"github.com/vishvananda/netns":   true,
}

// longest are the packages that take longest, in that order: go test starts packages in the order of its arguments, and
// one that takes minutes must not be the last to start.
var longest = []string{
	"test/e2e", "internal/gate", "internal/inband/ioam", "internal/bench", "internal/console/browser", "internal/agent",
	"internal/datapath", "internal/inband/pdm", "internal/balance", "internal/forward", "internal/lab",
}

// longestFirst sorts packages so; the others stay behind them as they are.
func longestFirst(prefix string, list []string) {
	rank := func(pkg string) int {
		if i := slices.Index(longest, strings.TrimPrefix(pkg, prefix)); i >= 0 {
			return i
		}
		return len(longest)
	}
	slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
}

// listPackages asks the go command, which so also fetches what the tests import.
func listPackages(ctx context.Context, patterns []string) (*packages, error) {
	module, err := goCommand(ctx, "list", "-m")
	if err != nil {
		return nil, err
	}
	// With -test, what go test would link is listed as "PACKAGE.test", with all that it imports.
	out, err := goCommand(ctx, append([]string{"list", "-test", "-json=ImportPath,Deps,Dir"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	found := &packages{prefix: strings.TrimSpace(string(module)) + "/"}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Deps       []string
			Dir        string
		}
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			longestFirst(found.prefix, found.kernel)
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode the list of packages: %w", err)
		}
		path, isTest := strings.CutSuffix(p.ImportPath, ".test")
		if !isTest {
			continue
		}
		into := &found.plain
		for _, dep := range p.Deps {
			// "PACKAGE [PACKAGE.test]" is the package with its tests.
			switch dep, _, _ = strings.Cut(dep, " "); {
			case dep == bootsMachines:
				into = &found.machines
			case reachesKernel[dep] && into == &found.plain:
				into = &found.kernel
			}
		}
		if into == &found.plain {
			concurrent, err := startsGoroutines(p.Dir)
			if err != nil {
				return nil, err
			}
			if concurrent {
				into = &found.concurrent
			}
		}
		*into = append(*into, path)
	}
}

// goroutine is a statement of a package or its tests that starts one.
var goroutine = regexp.MustCompile(`(?m)^\s*go (func\b|[\w.]+\()|\bt\.Parallel\(\)|/errgroup"`)

// startsGoroutines reports whether files of a folder do: without, the race detector has nothing to compare.
func startsGoroutines(dir string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return false, fmt.Errorf("list %s: %w", dir, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return false, fmt.Errorf("look for goroutines: %w", err)
		}
		if goroutine.Match(text) {
			return true, nil
		}
	}
	return false, nil
}

func goCommand(ctx context.Context, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, "go", args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
