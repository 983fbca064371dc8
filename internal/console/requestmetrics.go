package console

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func requestMetricsHandler(of func(ctx context.Context, namespace string) (prometheus.Gatherer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		metrics, err := of(r.Context(), r.URL.Query().Get("namespace"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
	}
}
