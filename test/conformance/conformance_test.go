package conformance

import (
	"io/fs"
	"os"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/kubernetes"
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

	"github.com/go-logr/logr"
)

const (
	// runVariable names the one test to run.
	runVariable = "FAIRLEAD_CONFORMANCE_RUN"
	// reportVariable is the file for the report.
	reportVariable = "FAIRLEAD_CONFORMANCE_REPORT"
	// patienceVariable replaces how long conditions are waited for: "20s", say.
	patienceVariable = "FAIRLEAD_CONFORMANCE_PATIENCE"
	// debugVariable has requests and responses printed.
	debugVariable = "FAIRLEAD_CONFORMANCE_DEBUG"
)

func TestGatewayAPI(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("clusters need root")
	}
	crlog.SetLogger(logr.Discard())
	rest, err := clientcmd.BuildConfigFromFlags("", os.Getenv(kubeconfigVariable))
	if err != nil {
		t.Fatal(err)
	}
	rest.QPS = -1
	c, err := client.New(rest, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, install := range []func() error{
		func() error { return gatewayv1.Install(c.Scheme()) },
		func() error { return v1alpha2.Install(c.Scheme()) },
		func() error { return v1alpha3.Install(c.Scheme()) },
		func() error { return gatewayx.Install(c.Scheme()) },
		func() error { return apiextensionsv1.AddToScheme(c.Scheme()) },
	} {
		if err := install(); err != nil {
			t.Fatal(err)
		}
	}
	clientset, err := kubernetes.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	ip := gatewayv1.IPAddressType
	conformance.RunConformanceWithOptions(t, suite.ConformanceOptions{
		Client: c, Clientset: clientset, RestConfig: rest,
		ManifestFS: []fs.FS{&conformance.Manifests},
		ConfigurableOptions: suite.ConfigurableOptions{
			GatewayClassName:         gatewayClass,
			CleanupBaseResources:     os.Getenv(runVariable) == "",
			CleanupTestResources:     true,
			ConformanceProfiles:      profiles,
			SupportedFeatures:        supported(),
			RunTest:                  os.Getenv(runVariable),
			ReportOutputPath:         os.Getenv(reportVariable),
			Debug:                    os.Getenv(debugVariable) != "",
			TimeoutConfig:            patience(t),
			UsableNetworkAddresses:   []gatewayv1.GatewaySpecAddress{{Type: &ip, Value: usable}},
			UnusableNetworkAddresses: []gatewayv1.GatewaySpecAddress{{Type: &ip, Value: unusable}},
			Implementation: report.Implementation{
				Organization: "fairlead", Project: "fairlead", URL: "https://fairlead.dev",
				Version: os.Getenv(versionVariable), Contact: []string{"https://fairlead.dev"},
			},
		},
	})
}

// patience is how long the suite waits for what. The usual times suit a slow cloud.
func patience(t *testing.T) config.TimeoutConfig {
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
