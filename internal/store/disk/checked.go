package disk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// A file of records has its checksums in a file of its own: one for each block, so that a bit
// that flipped anywhere is found when it is read.

// sumBlock is how many bytes a checksum is of.
const sumBlock = 1 << 16

// sumMagic begins a file of checksums.
const sumMagic = "WMSUM01\n"

// sums computes the checksums of what is written through it.
type sums struct {
	to    io.Writer
	list  []byte
	block uint32
	n     int   // bytes in the block
	size  int64 // of all
}

func (s *sums) Write(b []byte) (int, error) {
	n, err := s.to.Write(b)
	for rest := b[:n]; len(rest) > 0; {
		part := rest[:min(len(rest), sumBlock-s.n)]
		s.block = crc32.Update(s.block, castagnoli, part)
		rest = rest[len(part):]
		s.size += int64(len(part))
		if s.n += len(part); s.n == sumBlock {
			s.end()
		}
	}
	return n, err
}

func (s *sums) end() {
	s.list = binary.LittleEndian.AppendUint32(s.list, s.block)
	s.block, s.n = 0, 0
}

// bytes are those of the file of checksums: the size, a checksum for each block, and one of all
// of these.
func (s *sums) bytes() []byte {
	if s.n > 0 {
		s.end()
	}
	b := binary.LittleEndian.AppendUint64([]byte(sumMagic), uint64(s.size))
	b = append(b, s.list...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// checkedFile reads a file, and refuses blocks with another checksum.
type checkedFile struct {
	file *os.File
	size int64
	sums []byte
}

// DamagedError says that a file is not what was written.
type DamagedError struct{ Path, What string }

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged: %s; remove it, with its .sum, to lose only its records", e.Path, e.What)
}

func openChecked(path, sumPath string) (*checkedFile, error) {
	b, err := os.ReadFile(sumPath)
	if err != nil {
		return nil, err
	}
	const head = len(sumMagic) + 8
	end := len(b) - 4
	if end < head || string(b[:len(sumMagic)]) != sumMagic || crc32.Checksum(b[:end], castagnoli) != binary.LittleEndian.Uint32(b[end:]) {
		return nil, &DamagedError{path, "its checksums are not valid"}
	}
	c := &checkedFile{size: int64(binary.LittleEndian.Uint64(b[len(sumMagic):])), sums: b[head:end]}
	if c.file, err = os.Open(path); err != nil {
		return nil, err
	}
	info, err := c.file.Stat()
	if err == nil && info.Size() != c.size {
		err = &DamagedError{path, fmt.Sprintf("it has %d bytes, %d were written", info.Size(), c.size)}
	}
	if err != nil {
		c.file.Close()
		return nil, err
	}
	return c, nil
}

// ReadAt implements io.ReaderAt: it reads whole blocks.
func (c *checkedFile) ReadAt(b []byte, from int64) (int, error) {
	if from >= c.size {
		return 0, io.EOF
	}
	want := min(int64(len(b)), c.size-from)
	first := from / sumBlock * sumBlock
	last := min((from+want+sumBlock-1)/sumBlock*sumBlock, c.size)
	blocks := b
	if first != from || last != from+int64(len(b)) {
		blocks = make([]byte, last-first)
	}
	if _, err := c.file.ReadAt(blocks[:last-first], first); err != nil {
		return 0, err
	}
	for at := first; at < last; at += sumBlock {
		block := blocks[at-first : min(at-first+sumBlock, last-first)]
		if crc32.Checksum(block, castagnoli) != binary.LittleEndian.Uint32(c.sums[at/sumBlock*4:]) {
			return 0, &DamagedError{c.file.Name(), fmt.Sprintf("the checksum of byte %d on is wrong", at)}
		}
	}
	if len(blocks) != len(b) || first != from {
		copy(b, blocks[from-first:])
	}
	if want < int64(len(b)) {
		return int(want), io.EOF
	}
	return int(want), nil
}

func (c *checkedFile) Close() error { return c.file.Close() }
