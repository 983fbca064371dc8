package traffic

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"fairlead.dev/internal/model"
)

// Sample is what the proxies of machines have counted until a time.
type Sample struct {
	At       time.Time
	Requests map[string][]model.RequestFigures // by machine, each sorted
}

// Question is what somebody wants to see.
type Question struct {
	By        By
	Namespace string // of the owner of the route; empty: all
	Sort      Sort
	Limit     int // rows; 0: all
}

// Sort is the order of rows. Names decide between equal ones.
type Sort string

// The orders.
const (
	ByRate   Sort = "rate"   // requests a second, the most first
	ByErrors Sort = "errors" // answers 5xx a second, the most first
	ByName   Sort = "name"
)

// Rates compares two samples. Machines that are in one of them only are left out: their counters say nothing about the time
// between. A proxy that began meanwhile has smaller counters; what it has counted is since then.
func Rates(before, after Sample, q Question) model.Top {
	top := model.Top{Seconds: after.At.Sub(before.At).Seconds(), Machines: []string{}, Rows: []model.TopRow{}}
	rows := map[string]*model.TopRow{}
	for _, machine := range slices.Sorted(maps.Keys(after.Requests)) {
		was, both := before.Requests[machine]
		if !both {
			continue
		}
		top.Machines = append(top.Machines, machine)
		old := map[model.RequestFigures][model.StatusClasses]uint64{}
		for _, f := range was {
			old[f.Key()] = f.Classes
		}
		for i := range after.Requests[machine] {
			f := &after.Requests[machine][i]
			if _, namespace, _ := Owner(f.Route); q.Namespace != "" && namespace != q.Namespace {
				continue
			}
			name := q.By.name(f)
			if rows[name] == nil {
				rows[name] = &model.TopRow{Name: name}
			}
			count(rows[name], f, old[f.Key()], top.Seconds)
		}
	}
	for _, r := range rows {
		top.Rate += r.Rate
		top.Rows = append(top.Rows, *r)
	}
	slices.SortFunc(top.Rows, func(a, b model.TopRow) int { return q.Sort.compare(a, b) })
	top.Total = len(top.Rows)
	if q.Limit > 0 && len(top.Rows) > q.Limit {
		top.Rows = top.Rows[:q.Limit]
	}
	return top
}

// count adds a counter, and how much it has grown a second, to a row.
func count(r *model.TopRow, f *model.RequestFigures, old [model.StatusClasses]uint64, seconds float64) {
	for class, n := range f.Classes {
		r.Requests += n
		if n < old[class] { // another proxy has begun to count
			old = [model.StatusClasses]uint64{}
		}
	}
	for class, n := range f.Classes {
		if rate := float64(n-old[class]) / seconds; seconds > 0 {
			r.Rates[class] += rate
			r.Rate += rate
		}
	}
}

func (s Sort) compare(a, b model.TopRow) int {
	byName := cmp.Compare(a.Name, b.Name)
	switch s {
	case ByName:
		return byName
	case ByErrors:
		return cmp.Or(cmp.Compare(b.Rates[5], a.Rates[5]), cmp.Compare(b.Rate, a.Rate), byName)
	}
	return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Requests, a.Requests), byName)
}
