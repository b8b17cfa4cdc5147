package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// packages are those that have tests.
type packages struct {
	// prefix is the module's path, which no reader needs on each line.
	prefix string
	// machines are the packages whose tests boot emulated machines, kernel those that can reach network namespaces or
	// BPF, plain all others.
	plain, kernel, machines []string
}

// bootsMachines is the import that makes the difference.
const bootsMachines = "github.com/waymark-net/waymark/test/vm"

// reachesKernel are the imports that do.
var reachesKernel = map[string]bool{
	"github.com/cilium/ebpf":         true,
	"github.com/vishvananda/netlink": true,
	"github.com/vishvananda/netns":   true,
}

// listPackages asks the go command, which so also fetches what the tests import.
func listPackages(ctx context.Context, patterns []string) (*packages, error) {
	module, err := goCommand(ctx, "list", "-m")
	if err != nil {
		return nil, err
	}
	// With -test, what go test would link is listed as "PACKAGE.test", with all that it imports.
	out, err := goCommand(ctx, append([]string{"list", "-test", "-json=ImportPath,Deps"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	found := &packages{prefix: strings.TrimSpace(string(module)) + "/"}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Deps       []string
		}
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
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
		*into = append(*into, path)
	}
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
