// Package record keeps a file of records that is whole up to some record after any
// crash: a header, then records, each with its length and its checksum.
//
// It knows nothing of what records mean. Every readable beginning of a file is a
// sequence of whole records; what comes after the first that is not whole is never
// handed out. A file is replaced atomically, and only our user can read it.
package record

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxRecord is how long a record may be, bytes.
const maxRecord = 1 << 30

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrDamaged says that a file could not be read to its end.
var ErrDamaged = errors.New("damaged file")

// File is a file of records. It is not safe for concurrent use.
type File struct {
	path, header string
	file         *os.File
	size, first  int64
	broken       bool
}

// Open reads the file at path and hands each record to take, which may keep it. A file
// that is not there has no records. What follows a record that is not whole, or that take
// refuses, is not read; the error is ErrDamaged then. The File can be used whatever the
// error.
func Open(path, header string, take func(body []byte) error) (*File, error) {
	f := &File{path: path, header: header}
	from, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		f.broken = true // nothing to append to
		return f, nil
	}
	if err != nil {
		f.broken = true
		return f, err
	}
	defer from.Close()
	if f.size, f.first, err = read(from, header, take); err != nil {
		f.broken = true
		return f, fmt.Errorf("%w %s: %w", ErrDamaged, path, err)
	}
	return f, nil
}

// Read takes records from a stream as Open does from a file. The error is ErrDamaged.
func Read(r io.Reader, header string, take func(body []byte) error) error {
	if _, _, err := read(r, header, take); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// read takes records until the end or the first that is not whole. size is that of what
// was read, first that of the header and the first record.
func read(from io.Reader, header string, take func([]byte) error) (size, first int64, err error) {
	r := bufio.NewReaderSize(from, 1<<20)
	begin := make([]byte, len(header))
	if _, err := io.ReadFull(r, begin); err != nil || string(begin) != header {
		return 0, 0, fmt.Errorf("it does not begin with %q", header[:len(header)-1])
	}
	size = int64(len(header))
	for {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); err == io.EOF {
			return size, first, nil
		} else if err != nil {
			return size, first, fmt.Errorf("half a record at byte %d", size)
		}
		length := binary.LittleEndian.Uint32(head[:4])
		if length > maxRecord {
			return size, first, fmt.Errorf("a record of %d bytes at byte %d", length, size)
		}
		var body bytes.Buffer
		if n, err := io.CopyN(&body, r, int64(length)); err != nil {
			return size, first, fmt.Errorf("a record of %d bytes at byte %d has only %d", length, size, n)
		}
		if crc32.Checksum(body.Bytes(), castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
			return size, first, fmt.Errorf("wrong checksum of the record at byte %d", size)
		}
		if err := take(body.Bytes()); err != nil {
			return size, first, fmt.Errorf("record at byte %d: %w", size, err)
		}
		if size += 8 + int64(length); first == 0 {
			first = size
		}
	}
}

// Frame is a record as it stands in a file: its length and its CRC-32C, both 32 bits
// little-endian, and the body.
func Frame(body []byte) []byte {
	framed := make([]byte, 8, 8+len(body))
	binary.LittleEndian.PutUint32(framed, uint32(len(body)))
	binary.LittleEndian.PutUint32(framed[4:], crc32.Checksum(body, castagnoli))
	return append(framed, body...)
}

// Size is that of what is known to be in the file, bytes; First is it after the first record.
func (f *File) Size() int64 { return f.size }

// First is the size of the file after its first record.
func (f *File) First() int64 { return f.first }

// Broken says that the file is not what it should be: Replace it.
func (f *File) Broken() bool { return f.broken }

// Append writes records behind the others and waits until they are on the disk. After an
// error the file is broken.
func (f *File) Append(bodies ...[]byte) error {
	if err := f.append(bodies); err != nil {
		f.broken = true
		return err
	}
	return nil
}

func (f *File) append(bodies [][]byte) error {
	if f.file == nil {
		file, err := os.OpenFile(f.path, os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		f.file = file
	}
	var framed []byte
	for _, b := range bodies {
		framed = append(framed, Frame(b)...)
	}
	if _, err := f.file.WriteAt(framed, f.size); err != nil {
		return err
	}
	if err := f.file.Sync(); err != nil {
		return err
	}
	f.size += int64(len(framed))
	return nil
}

// Replace makes the file anew. The old one is there until the new one is whole.
func (f *File) Replace(bodies ...[]byte) error {
	f.Close()
	data := []byte(f.header)
	first := 0
	for i, b := range bodies {
		data = append(data, Frame(b)...)
		if i == 0 {
			first = len(data)
		}
	}
	if err := WriteFile(f.path, data); err != nil {
		f.broken = true
		return err
	}
	f.size, f.first, f.broken = int64(len(data)), int64(first), false
	return nil
}

// Close lets go of the file. It can be used again.
func (f *File) Close() {
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
}

// WriteFile replaces a file atomically: after a crash it is the old or the new one, whole.
// Only our user can read it.
func WriteFile(path string, data []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // it may be what filled the disk
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
