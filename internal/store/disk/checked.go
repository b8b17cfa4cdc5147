package disk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
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

// checkedFile reads a file, and refuses blocks with another checksum. It keeps the blocks that it
// read last: columns are small, and lie next to each other.
type checkedFile struct {
	file   *os.File
	size   int64
	sums   []byte
	blocks [keptBlocks]keptBlock
	next   int
}

// keptBlocks is how many blocks of a file are kept: 1 MiB.
const keptBlocks = 16

// keptBlock is a block that was read.
type keptBlock struct {
	number int64 // from 1; 0: none
	bytes  []byte
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
func (c *checkedFile) ReadAt(b []byte, from int64) (n int, err error) {
	for n < len(b) && from < c.size {
		if from%sumBlock == 0 && len(b)-n >= sumBlock { // a block, of which no copy is needed
			if err := c.read(b[n:n+sumBlock], from/sumBlock); err != nil {
				return n, err
			}
			n += sumBlock
			from += sumBlock
			continue
		}
		block, err := c.block(from / sumBlock)
		if err != nil {
			return n, err
		}
		part := copy(b[n:], block[from%sumBlock:])
		n += part
		from += int64(part)
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// block reads and verifies a block.
func (c *checkedFile) block(number int64) ([]byte, error) {
	for i := range c.blocks {
		if c.blocks[i].number == number+1 {
			return c.blocks[i].bytes, nil
		}
	}
	kept := &c.blocks[c.next]
	c.next = (c.next + 1) % keptBlocks
	if kept.bytes == nil {
		kept.bytes = *blockPool.Get().(*[]byte)
	}
	kept.number = 0
	kept.bytes = kept.bytes[:min(sumBlock, c.size-number*sumBlock)]
	if err := c.read(kept.bytes, number); err != nil {
		return nil, err
	}
	kept.number = number + 1
	return kept.bytes, nil
}

// read reads a block into b, and verifies it.
func (c *checkedFile) read(b []byte, number int64) error {
	at := number * sumBlock
	if _, err := c.file.ReadAt(b, at); err != nil {
		return err
	}
	if crc32.Checksum(b, castagnoli) != binary.LittleEndian.Uint32(c.sums[number*4:]) {
		return &DamagedError{c.file.Name(), fmt.Sprintf("the checksum of byte %d on is wrong", at)}
	}
	return nil
}

// blockPool has memory of blocks for the next file.
var blockPool = sync.Pool{New: func() any { b := make([]byte, sumBlock); return &b }}

func (c *checkedFile) Close() error {
	for i := range c.blocks {
		if b := c.blocks[i].bytes; b != nil {
			b = b[:sumBlock]
			blockPool.Put(&b)
		}
		c.blocks[i] = keptBlock{}
	}
	return c.file.Close()
}
