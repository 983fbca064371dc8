package console

import (
	"bytes"
	"io"
)

// printable writes UTF-8 text to a terminal. What machines and peers say may hold control
// characters, which would move the cursor or change what is on the screen: those of ASCII
// and of C1 (U+0080 to U+009F) become question marks. New lines stay.
type printable struct{ w io.Writer }

// screen is the buffer in front of a printable, bytes.
const screen = 64 << 10

// Write implements io.Writer.
func (p printable) Write(b []byte) (int, error) {
	clean := bytes.Clone(b)
	for i, c := range clean {
		switch {
		case c < ' ' && c != '\n', c == 0x7f:
			clean[i] = '?'
		case i > 0 && b[i-1] == 0xc2 && c < 0xa0: // the two bytes of a C1 character
			clean[i-1], clean[i] = '?', '?'
		}
	}
	if _, err := p.w.Write(clean); err != nil {
		return 0, err
	}
	return len(b), nil
}
