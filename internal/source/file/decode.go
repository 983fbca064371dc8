package file

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/source/mistype"
)

// header is what every document says of itself.
type header struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Items []any `json:"items"`
}

func (h header) String() string {
	name := h.Metadata.Name
	if h.Metadata.Namespace != "" {
		name = h.Metadata.Namespace + "/" + name
	}
	return strings.TrimSpace(h.Kind + " " + name)
}

// text reads all documents of a file.
func (l *loader) text(name, text string) {
	for _, d := range split(text) {
		l.whole(func() { l.document(name, d) })
	}
}

// whole counts an object that is left out for what reading it found.
func (l *loader) whole(read func()) {
	found, objects := len(l.faults.Found), l.faults.Objects
	read()
	// An item of a list that is left out has been counted.
	if len(l.faults.Found) > found && l.faults.Objects == objects {
		l.faults.Objects++
	}
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

func (l *loader) document(name string, d document) {
	where := func(line int) string { return name + ":" + strconv.Itoa(line) }
	encoded, err := yaml.YAMLToJSONStrict([]byte(d.text))
	if err != nil {
		// The decoder counts lines from the beginning of the document.
		message := yamlLine.ReplaceAllStringFunc(err.Error(), func(s string) string {
			n, _ := strconv.Atoi(strings.TrimPrefix(s, "line "))
			return "line " + strconv.Itoa(n+d.line-1)
		})
		l.fail(where(d.line), "%s", strings.Join(strings.Fields(message), " "))
		return
	}
	if string(encoded) == "null" {
		return
	}
	var root yamlv3.Node
	if err := yamlv3.Unmarshal([]byte(d.text), &root); err != nil || len(root.Content) == 0 {
		l.fail(where(d.line), "no YAML document: %v", err)
		return
	}
	l.value(encoded, lines{name: name, offset: d.line - 1, root: root.Content[0]})
}

// value puts one object, or each object of a list, into the snapshot.
func (l *loader) value(encoded []byte, at lines) {
	where := at.where("")
	var h header
	if encoded[0] != '{' {
		l.fail(where, "no Kubernetes object: want fields, apiVersion and kind among them")
		return
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(encoded, &h); err != nil {
		l.mistyped(encoded, &h, at, "no Kubernetes object", err)
		return
	}
	if h.Kind == "" || h.APIVersion == "" {
		l.fail(where, "no Kubernetes object: apiVersion and kind must be set")
		return
	}
	if h.Items != nil && strings.HasSuffix(h.Kind, "List") {
		l.list(encoded, at)
		return
	}
	found := len(l.faults.Found)
	resource, is := snapshot.ResourceFor(h.APIVersion, h.Kind)
	if !is {
		l.warnings = append(l.warnings, Warning{Where: where, What: fmt.Sprintf("%s (%s) is ignored: translation does not use this kind", h, h.APIVersion)})
		return
	}
	object, namespaced := resource.New(), !resource.ClusterScoped
	strict, err := json.UnmarshalStrict(encoded, object)
	if err != nil {
		l.mistyped(encoded, object, at, h.String(), err)
		return
	}
	for _, e := range strict {
		var field json.FieldError
		path := ""
		if errors.As(e, &field) {
			path = field.FieldPath()
		}
		if !strings.HasPrefix(e.Error(), "unknown field ") {
			l.fail(at.where(path), "%s: %w", h, e)
			continue
		}
		l.warnings = append(l.warnings, Warning{Where: at.where(path), What: fmt.Sprintf("%s: %v", h, e), Field: true})
	}
	switch {
	case !namespaced && object.GetNamespace() != "":
		l.fail(at.where("metadata.namespace"), "%s: a %s has no namespace", h, h.Kind)
	case namespaced && object.GetNamespace() == "":
		object.SetNamespace(corev1.NamespaceDefault)
	}
	for _, problem := range validation.NameIsDNSSubdomain(object.GetName(), false) {
		l.fail(at.where("metadata.name"), "%s: metadata.name: %s", h, problem)
	}
	if namespaced {
		for _, problem := range validation.ValidateNamespaceName(object.GetNamespace(), false) {
			l.fail(at.where("metadata.namespace"), "%s: metadata.namespace: %s", h, problem)
		}
	}
	if len(l.faults.Found) > found {
		return
	}
	key, err := l.snapshot.Set(resource.Trim(object, l.secretNamespace))
	if err != nil {
		l.fail(where, "%s: %w", h, err)
		return
	}
	if first, twice := l.seen[key]; twice {
		l.fail(where, "%s is defined twice: the definition at %s is ignored", key, first.where(""))
	}
	l.seen[key] = at
}

// mistyped says of each value that does not fit the object where it stands, what was expected and what is there. err is
// what the decoder says.
func (l *loader) mistyped(encoded []byte, object any, at lines, what string, err error) {
	all := mistype.Find(encoded, object)
	slices.SortStableFunc(all, func(a, b mistype.Mistype) int {
		return cmp.Compare(at.find(a.Steps).Line, at.find(b.Steps).Line)
	})
	for _, m := range all {
		l.fail(at.whereOf(m.Steps), "%s: %s", what, m)
	}
	if len(all) == 0 {
		l.fail(at.where(""), "%s: %w", what, err)
	}
}

// list reads the items of what `kubectl get -o yaml` writes.
func (l *loader) list(encoded []byte, at lines) {
	var list struct {
		Items []jsonText `json:"items"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(encoded, &list); err != nil {
		l.fail(at.where("items"), "items: %w", err)
		return
	}
	for i, item := range list.Items {
		path := "items[" + strconv.Itoa(i) + "]"
		l.whole(func() { l.value(item, lines{name: at.name, offset: at.offset, root: at.find(steps(path))}) })
	}
}

// jsonText keeps a value as it is written.
type jsonText []byte

// UnmarshalJSON copies the text.
func (t *jsonText) UnmarshalJSON(b []byte) error {
	*t = append((*t)[:0], b...)
	return nil
}

// lines finds the line of a field.
type lines struct {
	name   string
	offset int // of the document in its file
	root   *yamlv3.Node
}

// where is "file:line" of the field at a path like "spec.rules[0].name", or of the
// last part of the path that is there.
func (l lines) where(path string) string {
	return l.whereOf(steps(path))
}

// whereOf is where of a path in parts: keys may have dots.
func (l lines) whereOf(steps []string) string {
	return l.name + ":" + strconv.Itoa(l.find(steps).Line+l.offset)
}

// find returns the node at a path: of a field its key.
func (l lines) find(steps []string) *yamlv3.Node {
	at, value := l.root, l.root
	for _, part := range steps {
		for value.Kind == yamlv3.AliasNode {
			value = value.Alias
		}
		i, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(part, "["), "]"))
		switch {
		case value.Kind == yamlv3.SequenceNode && err == nil && i < len(value.Content):
			at, value = value.Content[i], value.Content[i]
		case value.Kind == yamlv3.MappingNode:
			found := false
			for j := 0; j+1 < len(value.Content); j += 2 {
				if value.Content[j].Value == part {
					at, value, found = value.Content[j], value.Content[j+1], true
					break
				}
			}
			if !found {
				return at
			}
		default:
			return at
		}
	}
	if len(steps) == 0 || strings.HasPrefix(steps[len(steps)-1], "[") {
		return value
	}
	return at
}

// steps cuts "a.b[0].c" into a, b, [0], c.
func steps(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(strings.ReplaceAll(path, "[", ".["), ".")
}
