package headroom

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// journal is the file of changes that have to be undone. It is written before
// each change, so that it may tell of one that was not made, but never not tell
// of one that was.
type journal struct {
	Owner   owner    `json:"owner"`
	Changes []change `json:"changes"`

	path string
}

// owner is a process; ids are used again, but not with the same start.
type owner struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // clock ticks after boot
}

// openJournal takes the file over, or begins one.
func openJournal(path string) (*journal, error) {
	self, err := findOwner(os.Getpid())
	if err != nil {
		return nil, err
	}
	j := &journal{path: path}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read what was changed to make room: %w", err)
	default:
		if err := json.Unmarshal(text, j); err != nil {
			return nil, fmt.Errorf("read what was changed to make room: %s: %w: look at IPv6 MTU and gso_max_segs of the interfaces, then delete the file", path, err)
		}
	}
	if j.Owner != self && j.Owner.runs() {
		return nil, fmt.Errorf("%w, process %d: stop it, or set pdm.reserve: none and pdm.mode: burst for this one", ErrBusy, j.Owner.PID)
	}
	j.Owner = self
	return j, nil
}

// save writes the file, or deletes it when there is nothing to undo.
func (j *journal) save() error {
	if len(j.Changes) == 0 {
		if err := os.Remove(j.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("forget what was changed to make room: %w", err)
		}
		return nil
	}
	text, err := json.MarshalIndent(j, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(j.path), 0o755)
	}
	if err == nil {
		err = replaceFile(j.path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("note what is changed to make room: %w", err)
	}
	return nil
}

// replaceFile leaves the old file or the new one, never half of it.
func replaceFile(path string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".room-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func (j *journal) has(c change) bool { return slices.ContainsFunc(j.Changes, c.is) }

func (j *journal) drop(c change) { j.Changes = slices.DeleteFunc(j.Changes, c.is) }

// findOwner reads field 22 of /proc/PID/stat.
func findOwner(pid int) (owner, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return owner{}, err
	}
	// The command, field 2, stands in parentheses and may hold anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return owner{}, fmt.Errorf("process %d has ended, or has an unexpected stat", pid)
	}
	return owner{PID: pid, Start: fields[19]}, nil
}

func (o owner) runs() bool {
	now, err := findOwner(o.PID)
	return err == nil && now == o
}
