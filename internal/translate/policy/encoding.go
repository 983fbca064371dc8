package policy

import (
	"slices"
	"strings"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
)

// compression reads how answers are compressed. What is wrong is left out; where no algorithm
// is left, answers stay as they are.
func (c *policyCompiler) compression(o *v1alpha1.Compression, path string) *model.Compression {
	if o.Disabled {
		if len(o.Algorithms)+len(o.ContentTypes) > 0 || o.MinBytes != nil {
			c.Fail(path+".disabled", "excludes the other fields: leave them out")
		}
		return &model.Compression{}
	}
	m := model.UsualCompression()
	if n := field.Number(&c.Policy, o.MinBytes, 1, 1<<20, path+".minBytes"); n > 0 {
		m.MinBytes = uint32(n)
	}
	if len(o.Algorithms) > 0 {
		m.Algorithms = nil
	}
	for i, a := range o.Algorithms {
		one := model.CompressionAlgorithm(a)
		switch {
		case one != model.CompressionGzip && one != model.CompressionBrotli && one != model.CompressionZstd:
			c.Fail(field.At(path+".algorithms", i), field.Quote(string(a))+" must be br, gzip or zstd")
		case !slices.Contains(m.Algorithms, one):
			m.Algorithms = append(m.Algorithms, one)
		}
	}
	for i, text := range o.ContentTypes {
		kind := strings.ToLower(text)
		main, sub, _ := strings.Cut(kind, "/")
		switch {
		case main == "" || sub == "" || !field.IsToken(main) || !field.IsToken(sub):
			c.Fail(field.At(path+".contentTypes", i), field.Quote(text)+` is not a media type like "text/html"`)
		case strings.HasPrefix(kind, "application/grpc"):
			c.Fail(field.At(path+".contentTypes", i), "gRPC clients and servers compress their own messages")
		default:
			m.ContentTypes = append(m.ContentTypes, kind)
		}
	}
	slices.Sort(m.ContentTypes)
	m.ContentTypes = slices.Compact(m.ContentTypes)
	if len(o.ContentTypes) > 0 && len(m.ContentTypes) == 0 {
		m.Algorithms = nil // none of the types that were meant, and not the usual ones instead
	}
	return m
}
