package policy

import (
	"cmp"
	"slices"
	"strconv"
	"unicode/utf8"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
)

const (
	pageType = "text/html; charset=utf-8"
	// How many bytes the pages of a policy may have together. Those of routes stand with each of them: about as much
	// as a route is itself.
	pagesLimit      = 32 << 10
	routePagesLimit = 4 << 10
)

// errorPages reads pages. One with a fault is left out.
func (c *policyCompiler) errorPages(list []v1alpha1.ErrorPage, path string) []model.ErrorPage {
	var pages []model.ErrorPage
	for i := range list {
		if page, ok := c.errorPage(&list[i], field.At(path, i)); ok {
			pages = append(pages, page)
		}
	}
	return c.fitting(pages, pagesLimit, path)
}

// fitting are the first pages that have so many bytes together at most.
func (c *policyCompiler) fitting(pages []model.ErrorPage, limit int, path string) []model.ErrorPage {
	bytes := 0
	for i := range pages {
		if bytes += len(pages[i].Body); bytes > limit {
			c.Fail(path, "must have "+strconv.Itoa(limit)+" bytes together at most")
			return pages[:i]
		}
	}
	return pages
}

func (c *policyCompiler) errorPage(o *v1alpha1.ErrorPage, path string) (model.ErrorPage, bool) {
	faults := c.Invalid.Message
	page := model.ErrorPage{ContentType: cmp.Or(o.ContentType, pageType), Body: o.Body}
	for i, status := range o.Statuses {
		text := status.String()
		n, err := strconv.Atoi(text)
		if text != "4xx" && text != "5xx" && (err != nil || n < 400 || n > 599) {
			c.Fail(field.At(path+".statuses", i), field.Quote(text)+" must be from 400 to 599, or 4xx or 5xx")
			continue
		}
		page.Statuses = append(page.Statuses, text)
	}
	slices.Sort(page.Statuses)
	page.Statuses = slices.Compact(page.Statuses)
	if len(o.Statuses) == 0 {
		c.Fail(path+".statuses", "at least one is needed")
	}
	if len(page.ContentType) > 128 || !field.IsFieldValue(page.ContentType) {
		c.Fail(path+".contentType", field.Quote(page.ContentType)+" is not a valid content type")
	}
	if page.Body == "" || !utf8.ValidString(page.Body) {
		c.Fail(path+".body", "must be a text")
	}
	return page, c.Invalid.Message == faults
}

// routeErrorPages reads the pages of routes; nil is none.
func (c *policyCompiler) routeErrorPages(list []v1alpha1.RouteErrorPage, path string) *model.ErrorPages {
	if len(list) == 0 {
		return nil
	}
	var pages []model.ErrorPage
	for i := range list {
		page, ok := c.errorPage(&list[i].ErrorPage, field.At(path, i))
		switch list[i].Of {
		case "", v1alpha1.ErrorsOfProxy:
		case v1alpha1.ErrorsOfAll:
			page.Backends = true
		default:
			c.Fail(field.At(path, i)+".of", field.Quote(string(list[i].Of))+" must be Proxy or All")
			ok = false
		}
		if ok {
			pages = append(pages, page)
		}
	}
	return &model.ErrorPages{Pages: c.fitting(pages, routePagesLimit, path)}
}
