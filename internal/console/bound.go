package console

import (
	"net/http"
	"time"
)

const (
	// maxAnswers is how many answers are made or sent at once: one may have several megabytes, and lives until
	// its reader has it.
	maxAnswers = 16
	// answerWait is how long a question waits for those before it.
	answerWait = 5 * time.Second
	// readTime is how long the reader of an answer may take, and so much longer for each megabyte.
	readTime = 5 * time.Second
)

// bounded answers so many questions at once. Who reads slowly, or not at all, holds up others for a while.
func bounded(next http.Handler) http.Handler {
	slots := make(chan struct{}, maxAnswers)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(answerWait)
		defer timer.Stop()
		select {
		case slots <- struct{}{}:
		case <-r.Context().Done():
			return
		case <-timer.C:
			w.Header().Set("Retry-After", "5")
			http.Error(w, "this console answers others: ask again", http.StatusServiceUnavailable)
			return
		}
		defer func() { <-slots }()
		next.ServeHTTP(w, r)
	})
}

// crossSite says that a browser asks for a page that is none of the console's. It may not read the answer, but
// questions have a cost, for machines, too.
func crossSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "same-origin" && site != "none"
}
