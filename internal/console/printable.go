package console

import (
	"bytes"
	"fmt"
	"io"
	"unicode"
)

// printable writes UTF-8 text to a terminal. What machines and peers say may hold control
// characters, which would move the cursor or change what is on the screen: those of ASCII
// and of C1 (U+0080 to U+009F) become question marks, and so do those that change the direction of text (Unicode's property
// Bidi_Control), by which a name can look like another one. New lines stay.
type printable struct{ w io.Writer }

// screen is the buffer in front of a printable, bytes.
const screen = 64 << 10

// turns says whether a character whose first byte is 0xe2 changes the direction of text, by its other bytes: U+200E, U+200F,
// U+202A to U+202E, and U+2066 to U+2069.
func turns(second, third byte) bool {
	return second == 0x80 && (third == 0x8e || third == 0x8f || third >= 0xaa && third <= 0xae) || second == 0x81 && third >= 0xa6 && third <= 0xa9
}

// Write implements io.Writer.
func (p printable) Write(b []byte) (int, error) {
	clean := bytes.Clone(b)
	for i, c := range clean {
		switch {
		case c < ' ' && c != '\n', c == 0x7f:
			clean[i] = '?'
		case i > 0 && b[i-1] == 0xc2 && c < 0xa0: // the two bytes of a C1 character
			clean[i-1], clean[i] = '?', '?'
		case i > 0 && b[i-1] == 0xd8 && c == 0x9c: // U+061C
			clean[i-1], clean[i] = '?', '?'
		case i > 1 && b[i-2] == 0xe2 && turns(b[i-1], c):
			clean[i-2], clean[i-1], clean[i] = '?', '?', '?'
		}
	}
	if _, err := p.w.Write(clean); err != nil {
		return 0, err
	}
	return len(b), nil
}

// PlainJSON is JSON in which what printable replaces, and DEL, is written as escapes: programs read the same strings, terminals show no
// other text, and YAML can be made of it.
func PlainJSON(b []byte) []byte {
	if !bytes.ContainsFunc(b, unsafeInJSON) {
		return b
	}
	var plain bytes.Buffer
	for _, r := range string(b) {
		if unsafeInJSON(r) {
			fmt.Fprintf(&plain, "\\u%04x", r)
			continue
		}
		plain.WriteRune(r)
	}
	return plain.Bytes()
}

// unsafeInJSON is of what encoding/json leaves as it is. Such characters are in strings only.
func unsafeInJSON(r rune) bool {
	return r >= 0x7f && r < 0xa0 || unicode.Is(unicode.Bidi_Control, r)
}
