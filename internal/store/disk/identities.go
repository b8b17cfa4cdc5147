package disk

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// identities are those of the intervals that came last, in a file and in memory. The file is a copy of what logs have;
// it is synchronized before one of them leaves.
type identities struct {
	path  string
	file  *os.File // nil: nothing came yet
	size  int64
	list  []Identity // in the order in which they came
	boots map[uint64]*boot
	dirty bool
}

// boot is what is known of a run of a sender.
type boot struct {
	last uint64
	sums map[uint64]uint32 // by number, of those in the list
}

const (
	identityBytes = 8 + 8 + 4 + 4 // and a checksum
	identityMost  = 8192          // that are known: a day of them, and half of that in times
)

// openIdentities reads the file of a directory, up to where it was torn.
func openIdentities(dir string) (*identities, error) {
	n := &identities{path: filepath.Join(dir, "received"), boots: map[uint64]*boot{}}
	all, err := os.ReadFile(n.path)
	if errors.Is(err, fs.ErrNotExist) {
		return n, nil
	}
	if err != nil {
		return nil, err
	}
	for ; len(all) >= identityBytes; all = all[identityBytes:] {
		one := all[:identityBytes]
		if crc32.Checksum(one[:identityBytes-4], castagnoli) != binary.LittleEndian.Uint32(one[identityBytes-4:]) {
			break
		}
		n.note(readIdentity(one))
		n.size += identityBytes
	}
	if n.file, err = os.OpenFile(n.path, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if err := n.file.Truncate(n.size); err != nil {
		return nil, errors.Join(err, n.file.Close())
	}
	return n, nil
}

func (n *identities) note(id Identity) {
	b := n.boots[id.Boot]
	if b == nil {
		b = &boot{sums: map[uint64]uint32{}}
		n.boots[id.Boot] = b
	}
	b.last = max(b.last, id.Sequence)
	b.sums[id.Sequence] = id.Sum
	n.list = append(n.list, id)
}

// find says whether an interval is known. One that is too old to be compared was kept, unless the sender's latest run
// has it: that goes on from an earlier state, as a machine does that is set back.
func (n *identities) find(id Identity) Kept {
	b := n.boots[id.Boot]
	if b == nil || id.Sequence > b.last {
		return KeptNew
	}
	sum, known := b.sums[id.Sequence]
	switch {
	case known && sum == id.Sum:
		return KeptKnown
	case !known && n.list[len(n.list)-1].Boot != id.Boot:
		return KeptKnown
	}
	return KeptOther
}

func (n *identities) last(boot uint64) uint64 {
	if b := n.boots[boot]; b != nil {
		return b.last
	}
	return 0
}

// recovered adds what a log has and the file may not have.
func (n *identities) recovered(list []Identity) error {
	for _, id := range list {
		if b := n.boots[id.Boot]; b != nil {
			if _, known := b.sums[id.Sequence]; known {
				continue
			}
		}
		if err := n.add(id); err != nil {
			return err
		}
	}
	return nil
}

// add notes an interval that the log has.
func (n *identities) add(id Identity) error {
	n.note(id)
	if n.file == nil || len(n.list) >= 2*identityMost {
		return n.rewrite()
	}
	b := appendIdentity(nil, &id)
	if _, err := n.file.WriteAt(b, n.size); err != nil {
		return nil // the log has it; what is missing here is written again before the log leaves
	}
	n.size += int64(len(b))
	n.dirty = true
	return nil
}

func appendIdentity(b []byte, id *Identity) []byte {
	from := len(b)
	b = id.append(b)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

// rewrite makes the file again, of the latest identities.
func (n *identities) rewrite() error {
	if old := len(n.list) - identityMost; old > 0 {
		list := slices.Clone(n.list[old:])
		n.list, n.boots = nil, map[uint64]*boot{}
		for _, id := range list {
			n.note(id)
		}
	}
	var b []byte
	for i := range n.list {
		b = appendIdentity(b, &n.list[i])
	}
	next := n.path + tmpSuffix
	file, err := os.OpenFile(next, os.O_RDWR|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(b, 0)
	if err = errors.Join(err, file.Sync(), os.Rename(next, n.path), syncDir(filepath.Dir(n.path))); err != nil {
		return errors.Join(err, file.Close())
	}
	if n.file != nil {
		n.file.Close()
	}
	n.file, n.size, n.dirty = file, int64(len(b)), false
	return nil
}

// sync has the disk keep all that is known.
func (n *identities) sync() error {
	switch {
	case len(n.list) == 0:
		return nil
	case n.size != int64(len(n.list)*identityBytes):
		return n.rewrite()
	case !n.dirty:
		return nil
	}
	n.dirty = false
	return n.file.Sync()
}

func (n *identities) close() error {
	if n.file == nil {
		return nil
	}
	return errors.Join(n.sync(), n.file.Close())
}
