package headroom

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// table is the content of the journal: changes that have to be undone. A change
// is written before it is made, so the journal may list one that was not made,
// but never misses one that was.
type table struct {
	Boot    string   `json:"boot"` // another boot: nothing of it is in effect
	Changes []change `json:"changes"`

	text []byte // as it was read or written last
}

func (t *table) find(c change) *change {
	if i := slices.IndexFunc(t.Changes, c.is); i >= 0 {
		return &t.Changes[i]
	}
	return nil
}

func (t *table) drop(c change) { t.Changes = slices.DeleteFunc(t.Changes, c.is) }

// journal is the file, which all agents of the host share.
type journal struct {
	path  string
	boot  string
	locks *locks
	self  owner
}

// openJournal takes part as an owner of changes.
func openJournal(path string) (*journal, error) {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err != nil {
		return nil, fmt.Errorf("journal of MTU headroom: %w", err)
	}
	j, err := readJournal(path, os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if j.self, err = j.locks.join(); err != nil {
		j.close()
		return nil, fmt.Errorf("journal of MTU headroom: %w", err)
	}
	return j, nil
}

// readJournal is for those who change nothing; create is a flag for the file of
// locks.
func readJournal(path string, create int) (*journal, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	locks, err := openLocks(strings.TrimSuffix(path, ".json")+".lock", create)
	if err != nil {
		return nil, fmt.Errorf("journal of MTU headroom: %w", err)
	}
	return &journal{path: path, boot: strings.TrimSpace(string(boot)), locks: locks}, nil
}

func (j *journal) close() { j.locks.close() }

// running are those of the owners that have not ended.
func (j *journal) running(owners []owner) []owner {
	return slices.DeleteFunc(slices.Clone(owners), func(o owner) bool { return o != j.self && !j.locks.held(o) })
}

// update lets f change the table, with no other agent doing so meanwhile.
func (j *journal) update(f func(*table) error) error {
	unlock, err := j.locks.exclude()
	if err != nil {
		return fmt.Errorf("journal of MTU headroom: %w", err)
	}
	defer unlock()
	t, err := j.load()
	if err != nil {
		return err
	}
	err = f(t)
	return errors.Join(err, j.save(t))
}

func (j *journal) load() (*table, error) {
	t := &table{}
	text, err := os.ReadFile(j.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("journal of MTU headroom: %w", err)
	default:
		if err := json.Unmarshal(text, t); err != nil {
			return nil, fmt.Errorf("journal of MTU headroom: %s: %w: check the IPv6 MTU and gso_max_segs of the interfaces, then delete the file", j.path, err)
		}
	}
	if t.Boot != j.boot {
		*t = table{Boot: j.boot}
	}
	t.text = text
	return t, nil
}

// save writes the file, or deletes it when there is nothing to undo.
func (j *journal) save(t *table) error {
	if len(t.Changes) == 0 {
		if err := os.Remove(j.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("journal of MTU headroom: %w", err)
		}
		return nil
	}
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return fmt.Errorf("journal of MTU headroom: %w", err)
	}
	if text = append(text, '\n'); bytes.Equal(text, t.text) {
		return nil
	}
	if err := replaceFile(j.path, text); err != nil {
		return fmt.Errorf("journal of MTU headroom: %w", err)
	}
	t.text = text
	return nil
}

// replaceFile leaves the old file or the new one, never half of it.
func replaceFile(path string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".headroom-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}
