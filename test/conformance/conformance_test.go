package conformance

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/apis/v1alpha2"
	"sigs.k8s.io/gateway-api/apis/v1alpha3"
	gatewayx "sigs.k8s.io/gateway-api/apisx/v1alpha1"
	"sigs.k8s.io/gateway-api/conformance"
	report "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/config"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/yaml"
)

// What runs can be asked for.
const (
	// runVariable names the one test to run.
	runVariable = "FAIRLEAD_CONFORMANCE_RUN"
	// reportsVariable is the directory for the reports, which are then of whole runs.
	reportsVariable = "FAIRLEAD_CONFORMANCE_REPORTS"
	// patienceVariable bounds how long anything is waited for: "20s", say.
	patienceVariable = "FAIRLEAD_CONFORMANCE_PATIENCE"
	// debugVariable has requests and responses printed.
	debugVariable = "FAIRLEAD_CONFORMANCE_DEBUG"
)

// The suite with the definitions that Fairlead installs.
func TestGatewayAPI(t *testing.T) { runSuite(t, standard) }

// What only the experimental definitions have, with those put in their place while
// Fairlead runs. It is the last: there is no way back.
func TestGatewayAPIExperimental(t *testing.T) {
	skipUnlessInside(t)
	installExperimental(t)
	runSuite(t, experimental)
}

func skipUnlessInside(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a cluster needs root")
	}
	if testing.Short() {
		t.Skip("takes minutes")
	}
}

// runSuite runs the suite's tests of a channel.
func runSuite(t *testing.T, c channel) {
	skipUnlessInside(t)
	crlog.SetLogger(logr.Discard())
	options := options(t, c)
	cases := selected(c, os.Getenv(reportsVariable) != "", os.Getenv(runVariable))
	s, err := suite.NewConformanceTestSuite(options)
	if err != nil {
		t.Fatal(err)
	}
	ok := t.Run("suite", func(t *testing.T) {
		s.Setup(t, cases)
		if err := s.Run(t, cases); err != nil {
			t.Fatal(err)
		}
	})
	if dir := os.Getenv(reportsVariable); dir != "" && ok {
		writeReport(t, s, filepath.Join(dir, "gateway-api-"+string(c)+".yaml"))
	}
}

func writeReport(t *testing.T, s *suite.ConformanceTestSuite, path string) {
	t.Helper()
	r, err := s.Report()
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s:\n%s", path, text)
}

// options of a run.
func options(t *testing.T, c channel) suite.ConformanceOptions {
	t.Helper()
	api := restConfig(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientscheme.AddToScheme, apiextensionsv1.AddToScheme,
		gatewayv1.Install, v1alpha2.Install, v1alpha3.Install, gatewayx.Install,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	to := client.Options{Scheme: scheme}
	objects, err := client.New(api, to)
	if err != nil {
		t.Fatal(err)
	}
	clientset, err := kubernetes.NewForConfig(api)
	if err != nil {
		t.Fatal(err)
	}
	var names []suite.ConformanceProfileName
	for _, p := range profiles {
		names = append(names, p.Name)
	}
	return suite.ConformanceOptions{
		Client: objects, ClientOptions: to, Clientset: clientset, RestConfig: api,
		ManifestFS: []fs.FS{&conformance.Manifests},
		ConfigurableOptions: suite.ConfigurableOptions{
			GatewayClassName: gatewayClass,
			// The next run uses them, and the last one's go with the cluster.
			CleanupBaseResources:     false,
			CleanupTestResources:     true,
			ConformanceProfiles:      names,
			SupportedFeatures:        supported(c),
			RunTest:                  os.Getenv(runVariable),
			Debug:                    os.Getenv(debugVariable) != "",
			TimeoutConfig:            patience(t),
			UsableNetworkAddresses:   []gatewayv1.GatewaySpecAddress{{Type: &addressType, Value: addresses().usable}},
			UnusableNetworkAddresses: []gatewayv1.GatewaySpecAddress{{Type: &addressType, Value: addresses().unusable}},
			Implementation: report.Implementation{
				Organization: "fairlead", Project: "fairlead", URL: "https://fairlead.dev",
				Version: os.Getenv(versionVariable), Contact: []string{"https://fairlead.dev"},
			},
		},
	}
}

// restConfig leads to the cluster.
func restConfig(t *testing.T) *rest.Config {
	t.Helper()
	api, err := clientcmd.BuildConfigFromFlags("", os.Getenv(kubeconfigVariable))
	if err != nil {
		t.Fatal(err)
	}
	api.QPS = -1
	return api
}

// patience is how long the suite waits for what. Its own times suit a slow cloud.
func patience(t *testing.T) config.TimeoutConfig {
	t.Helper()
	all := config.DefaultTimeoutConfig()
	text := os.Getenv(patienceVariable)
	if text == "" {
		return all
	}
	limit, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", patienceVariable, err)
	}
	for _, field := range []*time.Duration{
		&all.GatewayMustHaveAddress, &all.GatewayMustHaveCondition, &all.GatewayStatusMustHaveListeners,
		&all.GatewayListenersMustHaveConditions, &all.ListenerSetMustHaveCondition, &all.ListenerSetListenersMustHaveConditions,
		&all.HTTPRouteMustNotHaveParents, &all.HTTPRouteMustHaveCondition, &all.RouteMustHaveParents, &all.MaxTimeToConsistency,
		&all.LatestObservedGenerationSet, &all.DefaultTestTimeout, &all.NamespacesMustBeReady, &all.GWCMustBeAccepted,
	} {
		*field = min(*field, limit)
	}
	return all
}
