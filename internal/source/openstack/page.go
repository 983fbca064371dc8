package openstack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"fairlead.dev/internal/source/cloud"
)

// Bounds of what an API can have kept of its answers. Octavia and Keystone keep to them.
const (
	// pageEntries bounds the entries of a page, listEntries those of a list.
	pageEntries = 10_000
	listEntries = 200_000
	// valueBytes bounds one entry of a list, and an answer about one object.
	valueBytes = 4 << 20
	idBytes    = 64
	// nameBytes bounds names and tags, wordBytes statuses, addresses and times.
	nameBytes = 255
	wordBytes = 64
	tagCount  = 256
)

// stream reads JSON value by value, so that no answer has to be in memory whole.
type stream struct {
	*json.Decoder
	from *budget
}

// budget lets a number of bytes pass, and then fails.
type budget struct {
	io.Reader
	left, most int
}

func (b *budget) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, cloud.BadAnswer("a part of the answer is larger than %d MiB", b.most>>20)
	}
	n, err := b.Reader.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

func newStream(r io.Reader) *stream {
	from := &budget{Reader: r, most: valueBytes}
	return &stream{json.NewDecoder(from), from}
}

// value reads the next value.
func (s *stream) value(into any) error {
	s.from.left = valueBytes
	return early(s.Decode(into))
}

// token reads the next token.
func (s *stream) token() (json.Token, error) {
	s.from.left = valueBytes
	token, err := s.Token()
	return token, early(err)
}

// early says of the end of an answer that it comes too early.
func early(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// end is nil at the end of the answer.
func (s *stream) end() error {
	s.from.left = valueBytes
	_, err := s.Token()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return errors.New("there is more after the JSON")
	}
	return err
}

// skip reads over the next value.
func (s *stream) skip() error {
	for depth := 0; ; {
		token, err := s.token()
		switch {
		case err != nil:
			return err
		case token == json.Delim('{') || token == json.Delim('['):
			depth++
		case token == json.Delim('}') || token == json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// pageReader reads one page of a list.
type pageReader[T identified] struct {
	key     string
	entries []T
	found   bool
	next    string // marker of the next page
}

func (p *pageReader[T]) read(s *stream) error {
	begin, err := s.token()
	if err != nil {
		return err
	}
	if begin != json.Delim('{') {
		return cloud.BadAnswer("the answer is no JSON object")
	}
	for s.More() {
		key, err := s.token()
		if err != nil {
			return err
		}
		switch key {
		case p.key:
			err = p.readEntries(s)
		case p.key + "_links": // of Octavia and Neutron
			var links []struct{ Rel, Href string }
			if err = p.typed(p.key+"_links", s.value(&links)); err != nil {
				return err
			}
			for _, link := range links {
				if link.Rel == "next" {
					err = p.follow(link.Href)
				}
			}
		case "links": // of Keystone
			var links struct{ Next string }
			if err = p.typed("links", s.value(&links)); err == nil && links.Next != "" {
				err = p.follow(links.Next)
			}
		default:
			err = s.skip()
		}
		if err != nil {
			return err
		}
	}
	if _, err = s.token(); err != nil {
		return err
	}
	if !p.found {
		return cloud.BadAnswer("the answer has no %s", p.key)
	}
	return nil
}

func (p *pageReader[T]) readEntries(s *stream) error {
	begin, err := s.token()
	switch {
	case err != nil:
		return err
	case begin == nil:
		return nil
	case begin != json.Delim('['):
		return cloud.BadAnswer("%s is no list", p.key)
	case p.found:
		return cloud.BadAnswer("the answer has %s twice", p.key)
	}
	p.found = true
	for s.More() {
		if len(p.entries) == pageEntries {
			return cloud.BadAnswer("%s has more than %d entries", p.key, pageEntries)
		}
		var entry T
		if err := s.value(&entry); err != nil {
			return p.typed(p.key, err)
		}
		if err := trim(&entry); err != nil {
			return cloud.BadAnswer("entry %d of %s has %w", len(p.entries), p.key, err)
		}
		p.entries = append(p.entries, entry)
	}
	_, err = s.token()
	return err
}

// follow takes the link to the next page. Only its marker is used: the link may name another
// host, and those of Octavia lack the filters.
func (p *pageReader[T]) follow(link string) error {
	u, err := url.Parse(link)
	if err != nil || u.Query().Get("marker") == "" || len(u.Query().Get("marker")) > nameBytes {
		return cloud.BadAnswer("the link to the next page has no marker")
	}
	p.next = u.Query().Get("marker")
	return nil
}

// typed names the part of a page whose value is of another type than expected.
func (p *pageReader[T]) typed(part string, err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return cloud.BadAnswer("%s: %w", part, err)
	}
	return err
}

// trim cuts what is longer than it is in any cloud. An ID that is missing or too long is an
// error, since it could not be cut without becoming another one.
func trim[T identified](entry *T) error {
	word := func(texts ...*string) {
		for _, t := range texts {
			clip(t, wordBytes)
		}
	}
	switch e := any(entry).(type) {
	case *loadBalancer:
		clip(&e.Name, nameBytes)
		word(&e.ProvisioningStatus, &e.OperatingStatus, &e.UpdatedAt)
		// A tag that is cut would be another one.
		e.Tags = slices.DeleteFunc(e.Tags, func(tag string) bool { return len(tag) > nameBytes })
		e.Tags = slices.Clip(e.Tags[:min(len(e.Tags), tagCount)])
		return checkIDs(e.ID, nil, e.ProjectID, e.TenantID)
	case *listener:
		word(&e.ProvisioningStatus, &e.Protocol)
		return checkIDs(e.ID, slices.Concat(e.LoadBalancers, e.L7Policies), e.DefaultPoolID)
	case *pool:
		clip(&e.Name, nameBytes)
		word(&e.ProvisioningStatus, &e.OperatingStatus, &e.UpdatedAt)
		return checkIDs(e.ID, slices.Concat(e.LoadBalancers, e.Listeners, e.Members))
	case *policy:
		word(&e.Action, &e.ProvisioningStatus)
		return checkIDs(e.ID, nil, e.ListenerID, e.RedirectPoolID)
	case *member:
		word(&e.ProvisioningStatus, &e.OperatingStatus, &e.Address)
		return checkIDs(e.ID, nil)
	case *project:
		clip(&e.Name, nameBytes)
		return checkIDs(e.ID, nil)
	}
	return nil
}

// checkIDs checks the ID of an entry, those of other objects that it must name, and those that
// it may name. Keys, messages and URLs are made of them.
func checkIDs(id string, others []ref, optional ...string) error {
	if id == "" {
		return errors.New("no id")
	}
	for _, other := range others {
		if other.ID == "" {
			return errors.New("a reference without an id")
		}
		optional = append(optional, other.ID)
	}
	for _, id := range append(optional, id) {
		if len(id) > idBytes {
			return fmt.Errorf("an id of more than %d bytes", idBytes)
		}
		if strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '/' }) {
			return fmt.Errorf("the id %q, which cannot be part of a path", id)
		}
	}
	return nil
}

// clip cuts a text. It copies what is left, since the text may be a part of a larger one.
func clip(text *string, length int) {
	if len(*text) > length {
		*text = strings.Clone(strings.ToValidUTF8((*text)[:length], ""))
	}
}
