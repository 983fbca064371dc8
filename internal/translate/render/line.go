package render

import (
	"fmt"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/internal/model"
)

// listText joins texts with spaces; a dash stands for none.
func listText[T ~string](texts []T) string {
	if len(texts) == 0 {
		return "-"
	}
	var plain []string
	for _, t := range texts {
		plain = append(plain, string(t))
	}
	return strings.Join(plain, " ")
}

func addressList(addresses []netip.Addr) string {
	var texts []string
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return listText(texts)
}

func prefixTexts[T fmt.Stringer](prefixes []T) []string {
	var texts []string
	for _, p := range prefixes {
		texts = append(texts, p.String())
	}
	return texts
}

// frontendList joins the keys of frontends.
func frontendList(keys []model.FrontendKey) string {
	var texts []string
	for _, k := range keys {
		texts = append(texts, k.String())
	}
	return listText(texts)
}

func namespacePrefix[T ~string](namespace T) string {
	if namespace == "" {
		return ""
	}
	return string(namespace) + "/"
}

func writeConditions(b *strings.Builder, indent string, conditions []metav1.Condition) {
	for _, c := range conditions {
		fmt.Fprintf(b, "%s%s=%s %s: %s\n", indent, c.Type, c.Status, c.Reason, c.Message)
	}
}
