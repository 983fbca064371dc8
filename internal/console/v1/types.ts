// The answers of Fairlead's consoles. Written by `go test ./internal/console/v1 -update` from the declarations in Go.

// AgentStatus is an agent for people and the console.
export interface AgentStatus {
  machine: string;
  version: string;
  // connected to; empty when to none
  plane?: string;
  trouble?: string;
  // Forgetting says why the state is not remembered; empty while it is.
  forgetting?: string;
  // Withheld says why the proxy waits for a state; empty while it does not, or while there is none.
  withheld?: string;
  certificateExpires?: string;
  cordoned: boolean;
  // revision that a plane has sent
  accepted: string;
  // revision that the proxy runs
  applied: string;
  problems: RefusedItem[] | null;
  proxy: ProxyStatus;
  // Sessions with BGP peers and VIPs, as the machine sees them.
  sessions: Session[] | null;
  vips: VIPObserved[] | null;
  // Unhealthy are the checks of this machine that fail; the plane counts those of others too.
  unhealthy: CheckResult[] | null;
  // Frontends that the machine balances or has backends of.
  frontends: FrontendObserved[] | null;
  // Interfaces at which data planes have programs, or could have.
  interfaces: InterfaceObserved[] | null;
}

// CheckResult is what a machine found.
export interface CheckResult {
  id: string;
  health: Health;
  since?: string;
  // the last failure
  message?: string;
  // First says that the first answer was a bad one, and that there were not yet as many bad ones in
  // a row as take a backend out that works: where others know better, it decides nothing.
  first?: boolean;
}

// FrontendObserved is what a machine does about a frontend.
export interface FrontendObserved extends FrontendKey {
  // State is balanced, decap (the machine only has backends of it), pending (the data plane
  // has not taken it yet) or refused.
  state: FrontendState;
  mode?: ForwardMode;
  dataPlane?: DataPlaneKind;
  // Message says why it is pending or refused, or why mode and data plane are not as asked.
  message?: string;
  // Available backends: those that new flows may go to.
  available: number;
  // Parting are connections that the machine's proxy still has though the machine has the
  // VIP no longer.
  parting?: number;
}

// InterfaceObserved is an interface of a machine that holds an address, as its data plane
// sees it.
export interface InterfaceObserved {
  name: string;
  use: InterfaceUse;
  // Message says why it is not used.
  message?: string;
}

// InterfaceUse is what the data plane does at an interface.
export type InterfaceUse = "native" | "generic" | "tunnels" | "unused";

// BackendStatus is one backend of a frontend over all machines.
export interface BackendStatus extends FrontendBackend {
  frontend: FrontendKey;
  owner: Object;
  // Percent of the new flows that it gets.
  percent: number;
  // Says is who says what of its health; empty when nobody checks it.
  says?: HealthSaid[];
  // Uncounted are machines that have the frontend and report, but have not told how many flows
  // they have; sorted.
  uncounted?: string[];
  // Known is set when a machine that balances the frontend has told its figures, which
  // are summed up over those machines.
  known: boolean;
  // that go on now, each once
  flows: number;
  newFlows: number;
  packets: number;
  bytes: number;
  // RowsPercent is its part of the machines' lookup tables.
  rowsPercent: number;
  // Drain is how long it keeps its flows once it takes no new one.
  drainNanoseconds: number;
}

// FrontendBackend is a backend of one frontend as every load balancer is told, the same
// to all.
export interface FrontendBackend {
  // Address where it answers. Of a proxy it is the VIP.
  address: string;
  // Machine of ours that it is on; empty when it is on none.
  machine?: string;
  // Weight is its share of new flows, relative to the others'; 0 takes none.
  weight: number;
  // HopWeight is the largest weight within the last drain time, at least Weight. It says
  // for which rows the backend may own flows.
  hopWeight: number;
  // State is draining while it only finishes what it has, and unready when nothing may be
  // sent to it.
  state: BackendState;
  health?: Health;
  // Backup says that it is to have flows only while no other backend of its set is able to.
  backup?: boolean;
  // Standby is the weight that a backup without flows has as soon as it is needed; 0 of all
  // other backends. Weight is 0 until then.
  standby?: number;
}

// BackendState says whether a backend takes new work.
export type BackendState = "ready" | "draining" | "unready";

// Health is what the checkers of a backend say.
export type Health = "" | "unknown" | "healthy" | "unhealthy";

// HealthSaid is what one machine says of a backend.
export interface HealthSaid {
  // empty: the plane, of why nobody checks it
  machine: string;
  health: Health;
  // Passive: its proxy saw requests fail; nobody asked the backend.
  passive?: boolean;
  message?: string;
}

// ChangeVerb says what became of an object.
export type ChangeVerb = "created" | "changed" | "deleted";

// Change is one change of an object in the API, as the plane that leads saw it.
export interface Change {
  // Number grows from change to change, and tells one from all others.
  number: number;
  // Epoch and Revision are those of what machines were sent because of it. Without a revision no machine was sent
  // anything at once.
  epoch?: number;
  revision?: number;
  at: string;
  // Who is the user of the API who wrote the object last; empty: that is not known. It is never known of a deletion.
  who?: string;
  verb: ChangeVerb;
  object: Object;
  diff?: FieldChange[];
  // More is how many changed fields are not in Diff.
  more?: number;
  // Machines are those whose proxies have it, the first first.
  machines?: MachineTime[];
}

// FieldChange is one field of an object before and after a change. Old and New are JSON, and may be cut; a field that was
// not there is empty.
export interface FieldChange {
  path: string;
  old?: string;
  new?: string;
}

// MachineTime is when a machine reported that its proxy runs a change.
export interface MachineTime {
  machine: string;
  at: string;
}

// Drop is a packet that was dropped.
export interface Drop {
  at: string;
  reason: string;
  // where it came from
  interface: string;
  // of the packet, bytes
  length: number;
  // the beginning of the frame
  data: string;
}

// FlowExplanation is what becomes of a flow's packets, and why.
export interface FlowExplanation {
  request: ExplainedFlow;
  vip?: VIPStatus;
  frontend?: Frontend;
  at?: FlowFrontendAt[];
  // Discovered are the services of upstreams whose endpoints are backends of the frontend.
  discovered?: Discovered[];
  // Hash of the flow, and the row that it chooses of so many.
  // hexadecimal
  hash?: string;
  row: number;
  rows?: number;
  // Asked are the backends of the row, in the order in which they are asked. The first
  // takes the flow if it is new; the others, which tunnels only lead on to, may have begun
  // it before a change.
  asked?: FlowBackend[];
  // Flows that machines have in their tables already.
  flows?: FlowSeenAt[];
  // Backend takes the flow if it is new; nil when nobody does.
  backend?: FlowBackend;
  // Reason by which load balancers count what they drop of it, if it is new; else empty.
  reason?: string;
  answer: string;
  notes?: string[];
}

// ExplainedFlow is a flow to explain: where a client sends to, and from where.
export interface ExplainedFlow {
  frontend: FrontendKey;
  client: string;
  // Machine at which its packets arrive; empty leaves it open.
  machine?: string;
}

// FlowFrontendAt is what one machine does about a frontend.
export interface FlowFrontendAt extends FrontendObserved {
  machine: string;
}

// FlowBackend is a backend with its share.
export interface FlowBackend extends FrontendBackend {
  // Percent of the rows of which it is the first.
  percent: number;
  why: string;
}

// FlowSeenAt is a flow in the table of one machine.
export interface FlowSeenAt extends Flow {
  at: string;
}

// Explanation is what becomes of a request, step by step. A step that is not reached is
// nil; Answer says why.
export interface Explanation {
  request: ExplainedRequest;
  // Notes say what the proxy changes before it looks for a route.
  notes?: string[];
  network: NetworkStep;
  listener?: ListenerStep;
  tls?: TLSStep;
  host?: HostStep;
  routes?: RoutesStep;
  route?: RouteStep;
  groups?: GroupStep[];
  answer: Answer;
  // OfOthers name the request's host, and nothing of them is served here.
  ofOthers?: OfOther[];
  // OfOthersMore there are than OfOthers has.
  ofOthersMore?: number;
  // Frozen says that changes are held back while routing is frozen.
  frozen?: Frozen;
  // Problems that concern the request, in the order in which they were given.
  problems: Problem[] | null;
}

// ExplainedRequest is the request to explain, as a client would send it.
export interface ExplainedRequest {
  method: string;
  // http or https
  scheme: string;
  // Host is the value of the Host header, with a port where the client sends one.
  host: string;
  // Port is where the client connects to.
  port: number;
  // escaped, as it is sent; begins with "/"
  path: string;
  query?: string;
  // Headers besides Host, in the order in which they are sent.
  headers?: RequestHeader[];
  // VIP is the address that the client connects to; zero leaves it open.
  vip?: string;
  // From is the address that the connection comes from; zero leaves it open.
  from?: string;
  // SNI is the server name that the client asks for in its handshake, where that is not
  // the host of the URL. Dial is the latter where the Host header replaces it.
  sni?: string;
  dial?: string;
}

// RequestHeader is one header field of a request.
export interface RequestHeader {
  // lower case
  name: string;
  value: string;
}

// NetworkStep is how the request gets to a machine.
export interface NetworkStep {
  // VIPs that lead to the listener, or the one that was asked for.
  vips: VIPStep[] | null;
  // Edges that may take the connection.
  edges: EdgeStep[] | null;
  // How the edge is chosen, in a sentence.
  how: string;
  // Nobody says why no machine takes the connection; empty when one does.
  nobody?: string;
}

// VIPStep is an address that leads to the listener.
export interface VIPStep {
  address: string;
  owner: Source;
  pool: Source;
  announce: Announce;
  state: string;
  message?: string;
  // Machines that the pool selects.
  machines: string[] | null;
  // By are the machines that announce it.
  by: string[] | null;
  // Not are the pool's other machines.
  not?: NotAnnouncing[];
  note?: string;
}

// Source is the resource that decided something, and the field that says so.
export interface Source extends Object {
  // path, like "spec.rules[0].matches[1]"
  field?: string;
  // file:line, where manifests are explained
  where?: string;
}

// NotAnnouncing is a machine of the pool that does not announce a VIP.
export interface NotAnnouncing {
  machine: string;
  // empty: it does not report
  state?: VIPState;
  why: string;
}

// EdgeStep is a machine that may take the connection.
export interface EdgeStep {
  machine: string;
  // Through are the addresses by which it is reached: VIPs, or its own.
  through: string[] | null;
  // Note says what may be different there.
  note?: string;
}

// ListenerStep is where the proxies take the request.
export interface ListenerStep extends Listener {
  by?: Source[];
  // ByMore there are than By names.
  byMore?: number;
  // ClientsBy are the ClientPolicies behind its settings for clients.
  clientsBy?: Source[];
  // Machines that serve it.
  machines: string[] | null;
  // Others listen at the same port, at other addresses; the first few.
  others?: ListenerID[];
  notes?: string[];
}

// TLSStep is what becomes of a client's handshake.
export interface TLSStep {
  // ServerName that the client asks for; empty is none.
  serverName: string;
  // LookedFor in order, until one is there; Host is the one that is.
  lookedFor: string[] | null;
  host?: string;
  by?: Source[];
  // ByMore there are than By names.
  byMore?: number;
  // Certificates to show; the client's algorithms choose among several.
  certificates?: ShownCertificate[];
  minVersion?: string;
  // ClientCertificate is required, optional or empty; Authorities must have signed it.
  clientCertificate?: string;
  authorities?: AuthorityID[];
  // Passthrough hands the connection on as it is, TCP what is inside of it, as bytes.
  passthrough?: boolean;
  tcp?: boolean;
  // Fails says why the handshake does; empty when it comes about.
  fails?: string;
  notes?: string[];
}

// ShownCertificate is what a server shows.
export interface ShownCertificate {
  id: CertificateID;
  by: Source;
  names: string[] | null;
  notBefore: string;
  notAfter: string;
  // Problem is why clients refuse it; empty when they have no reason that is known here.
  problem?: string;
}

// HostStep is how the virtual host was found.
export interface HostStep {
  // Name that was looked up: lower case, without port and trailing dot.
  name: string;
  // LookedFor in order, until one is there.
  lookedFor: string[] | null;
  // VirtualHost that was found, empty when none was.
  virtualHost?: string;
  // Kind is exact, wildcard or any.
  kind?: string;
  by?: Source[];
  // ByMore there are than By names.
  byMore?: number;
  // Routes of the virtual host.
  routes: number;
  note?: string;
}

// RoutesStep are those that do not take the request, in the order in which they are tried.
export interface RoutesStep {
  // Tried counts the routes before the one that takes the request.
  tried: number;
  // Passed are some of them, those first whose path matches, with the reason.
  passed: PassedRoute[] | null;
  // Also would take the request if no route before them did; the first few.
  also?: Source[];
}

// PassedRoute is a route that does not take the request.
export interface PassedRoute extends Source {
  match: string;
  why: string;
}

// RouteStep is the one that takes the request.
export interface RouteStep {
  // Name as the proxies log it.
  name: string;
  by: Source;
  // Match in words.
  match: string;
  // One of these is set.
  respond?: Respond;
  redirect?: RedirectStep;
  forward?: ForwardStep;
  // Policies that the request passes, in order.
  policies?: PolicyStep[];
  cors?: CORSStep;
  // ResponseHeaders are edited on the way back.
  responseHeaders?: HeaderEdits;
}

// RedirectStep is a redirect with where it leads.
export interface RedirectStep extends Redirect {
  // Location as clients are told.
  location: string;
}

// ForwardStep is how a route sends requests to backends.
export interface ForwardStep {
  // Path is what backends see, with the query.
  path: string;
  // By says the weights.
  by: Source;
  // Rewrite makes Path; nil when it stays.
  rewrite?: PathRewrite;
  // Host that backends see; empty is the client's.
  host?: string;
  // Mirrors get copies.
  mirrors?: Mirror[];
  // Timeout of the whole request; 0 is none.
  timeoutNanoseconds: number;
  // Idle is how long nothing may happen; 0 is for ever.
  idleNanoseconds: number;
  // Attempts after the first one. Those of failed connections are made in any case;
  // RetryAny says that 5xx answers are retried too, RetryCodes which other answers are.
  attempts: number;
  retryAny: boolean;
  retryCodes?: number[];
  // RetryBroken says that the request is also sent again when a connection broke before an
  // answer began.
  retryBroken?: boolean;
  perTryTimeoutNanoseconds?: number;
  // WebSocket: connections are meant to become some. Others may, too, unless NoUpgrade is set.
  websocket: boolean;
  noUpgrade?: boolean;
  // Stream: gRPC and the like, which no default timeout bounds.
  stream?: boolean;
  // Sticky keeps a client at the backend that it got first.
  sticky?: Sticky;
  // Headers that the route's edits change for every backend.
  headers?: ChangedHeader[];
}

// ChangedHeader is a header that edits change on the way to the backend.
export interface ChangedHeader {
  name: string;
  // Values that the client sends, and that the backend gets, one a field; none when it is
  // removed.
  before?: string[];
  values: string[] | null;
}

// PolicyStep is what a request must pass before the route does what it does.
export interface PolicyStep {
  kind: PolicyKind;
  by?: Source[];
  // Text says it in words.
  text: string;
  // Service that is asked, with the number of its backends that take requests.
  service?: GroupID;
  ready?: number;
  // Status of the answer to the request when it does not pass, and why. 0 is that it
  // passes, or that this cannot be known from here.
  status?: number;
  why?: string;
}

// PolicyKind is the matter of a policy.
export type PolicyKind = "grpcWeb" | "addresses" | "rateLimit" | "maxRequestBytes" | "authorization" | "globalRateLimit" | "compression" | "errorPages" | "accessLog";

// CORSStep is how a route treats a request of a browser for a page of another origin.
export interface CORSStep {
  // Origin of the page, and whether its scripts may read the answer.
  origin: string;
  allowed: boolean;
  // Preflight says that the proxy answers by itself what the browser asks beforehand.
  preflight: boolean;
}

// GroupStep is a share of the route's requests and who takes it.
export interface GroupStep {
  // Group is empty when the reference is broken; the share is answered 500.
  group: GroupID;
  weight: number;
  percent: number;
  // By are the Service and the EndpointSlices behind the share.
  by?: Source[];
  // ByMore there are than By names.
  byMore?: number;
  // Upstream says of what the Service was discovered; nil: it was not.
  upstream?: Discovered;
  balance?: Balance;
  // Check is the path of a health check.
  check?: string;
  // PolicyBy are the BackendPolicies and the BackendTLSPolicy that hold for the backends.
  policyBy?: Source[];
  protocol?: BackendProtocol;
  tls?: BackendTLS;
  proxyProtocol?: boolean;
  outlier?: OutlierDetection;
  limits?: BackendLimits;
  idleTimeoutNanoseconds?: number;
  // Host and Headers that this share's backends see otherwise than the route says.
  host?: string;
  headers?: ChangedHeader[];
  responseHeaders?: HeaderEdits;
  // backends that take new requests
  ready: number;
  backends: GroupBackend[] | null;
  // Refusal says which endpoints are no backends, and why; empty where none is refused.
  refusal?: string;
}

// Discovered is what a discovered Service is of.
export interface Discovered {
  upstream: string;
  // of the upstream: "Service team01/app"
  object: string;
  // Age is how long ago the upstream gave what is in effect, and Contact how long ago it answered last; 0: it is not known.
  ageNanoseconds?: number;
  contactNanoseconds?: number;
  // Held is since when the upstream does not list it like this; zero: it does, or that is not known.
  held?: string;
  // Failing is since when the upstream does not answer; zero: it does, or that is not known.
  failing?: string;
}

// GroupBackend is one backend with its share of the route's requests.
export interface GroupBackend {
  address: string;
  // ready, draining or unready
  state: string;
  // Backup says that requests come to it only while no other backend is able to take them.
  backup?: boolean;
  // Weight among the group's backends; 0 counts as 1.
  weight?: number;
  zone?: string;
  // Health is what its checks came to; empty where there are none, or nobody knows here.
  health?: Health;
  // Percent is what comes to it in the long run, all clients together.
  percent: number;
}

// Answer is what the client gets.
export interface Answer {
  // Connects is false when nothing takes the connection, or not what the client speaks.
  connects: boolean;
  // Text says it in a sentence.
  text: string;
  // Outcomes add up to 100 percent when the client connects.
  outcomes: Outcome[] | null;
}

// Outcome is what becomes of a share of such requests.
export interface Outcome {
  percent: number;
  // Status of an answer that the proxy gives; 0 when a backend answers.
  status?: number;
  // GRPC is the status as gRPC clients get it, with HTTP status 200.
  grpc?: string;
  // Closed says that the connection is closed instead of an answer.
  closed?: boolean;
  group?: GroupID;
  why?: string;
}

// OfOther is an IngressRoute that has the request's host, and whose class is another controller's.
export interface OfOther extends Source {
  class: string;
}

// Frozen is a Freeze, seen from the request.
export interface Frozen {
  since: string;
  asOf: string;
  reason?: string;
  // Held says that a change of the listener or the host waits for the end of the freeze.
  held: boolean;
}

// FlowList are flows of several machines.
export interface FlowList {
  flows: FlowAt[] | null;
  // Answered are the machines that have told, sorted; Silent those that were asked and did
  // not; Truncated those that have more.
  answered: string[] | null;
  silent?: string[];
  truncated?: string[];
}

// FlowAt is a flow in the flow table of a machine.
export interface FlowAt extends Flow {
  at: string;
}

// Flow is an entry of a flow table.
export interface Flow {
  frontend: FrontendKey;
  client: string;
  backend: string;
  // of the backend
  machine?: string;
  // State is new, established, closing or owned (at the backend's machine).
  state: string;
  idleNanoseconds: number;
}

// FlowTapEvent is an event of a flow, or how the machines are with a tap.
export interface FlowTapEvent {
  event?: FlowEvent;
  // Dropped is how many events were beyond a bound since the last one, at least.
  dropped?: number;
  // Frontends that are watched, where that is new.
  frontends?: FrontendKey[];
  // Machines that have one of the frontends, sorted, where something of them is new.
  machines?: FlowTapMachine[];
}

// FlowTapMachine is how a machine is with a tap of flows.
export interface FlowTapMachine {
  machine: string;
  // Notes are what its data planes do not tell.
  notes?: string[];
  // Unable is why it shows nothing; empty: it does.
  unable?: string;
}

// FlowEvent is the begin, the move (to another backend) or the end of a flow.
export interface FlowEvent {
  at: string;
  machine: string;
  frontend: FrontendKey;
  // Owner of the frontend, as "KIND NAMESPACE/NAME".
  owner: string;
  // Kind is begin, move or end.
  kind: string;
  // Reason of a begin is midway, again or silent; of a move backend-gone, backend-unready, backend-unhealthy or
  // backend-drained; of an end client-fin, client-rst, backend-fin, backend-rst, idle, unopened, forgotten or closed. It is
  // empty where there is nothing to say, or nothing known.
  reason: string;
  // Client has port 0 where one event stands for all flows of the address.
  client: string;
  backend: string;
  backendMachine: string;
  // From is the backend before a move; not valid where it is not known.
  from: string;
  dataPlane: DataPlaneKind;
}

// VIPStatus is a VIP over all machines.
export interface VIPStatus extends Assignment {
  // Frontends at it, sorted.
  frontends?: FrontendKey[];
  // State is announced, withheld or unserved (nothing of ours serves the owner yet).
  state: string;
  // why it is not announced, or not everywhere
  message?: string;
  // At says what each connected machine of the pool does about it, sorted by machine.
  at: VIPAt[] | null;
}

// Assignment is a VIP with its owner, over all machines.
export interface Assignment {
  address: string;
  pool: string;
  // Owner has the VIP. The root IngressRoutes that share one are an Object of that kind
  // without namespace and name.
  owner: Object;
  announce: Announce;
  listeners: ListenerID[] | null;
  // Machines that the pool selects, sorted.
  machines: string[] | null;
}

// Announce is how the network learns where a VIP is.
export type Announce = "BGP" | "L2";

// VIPAt is a VIP at one machine.
export interface VIPAt extends VIPObserved {
  machine: string;
  // HandsOver: the machine is to have the VIP no longer, or is cordoned, and goes on until
  // another one announces it.
  handsOver?: boolean;
}

// VIPObserved is a VIP as one machine sees it.
export interface VIPObserved {
  address: string;
  state: VIPState;
  // why it is withheld
  message?: string;
  since?: string;
}

// VIPState is what a machine does about a VIP.
export type VIPState = "announced" | "standby" | "withheld";

// SessionStatus is a BGP session as its machine last reported it.
export interface SessionStatus extends Session {
  machine: string;
}

// Session is one machine's session with one peer, as the machine sees it.
export interface Session {
  peer: string;
  // Address is link-local with its zone; zero while the router of Interface is not found.
  address?: string;
  // on which the router was, or is to be, found
  interface?: string;
  state: SessionState;
  reason?: SessionReason;
  // the reason in words: what, where, what to do
  message?: string;
  // of the state
  since?: string;
  // Flaps counts how often an established session was lost since the agent began.
  flaps: number;
  // Panics counts the bugs that ended this session or its BFD since the agent began.
  panics?: number;
  // BFD is "up", "down" or "init"; empty when it is not used.
  bfd?: string;
  // Advertised are the prefixes that were sent to the peer, sorted.
  advertised?: string[];
  // prefixes that the peer sends; none is used
  received: number;
  localASN: number;
  peerASN: number;
  // ours
  routerID?: string;
  // theirs, once known
  peerRouterID?: string;
  // negotiated
  holdTimeNanoseconds?: number;
}

// SessionState is a state of BGP's state machine (RFC 4271, 8.2.2), or SessionBlocked.
export type SessionState = "idle" | "connect" | "active" | "open-sent" | "open-confirm" | "established" | "blocked";

// SessionReason says in a word why a session is not established, or what troubles one
// that is.
export type SessionReason = "" | "Starting" | "Unreachable" | "Refused" | "Reset" | "WrongAS" | "NoAnswer" | "PasswordMissing" | "NoCommonFamily" | "Notified" | "ProtocolError" | "HoldTimeExpired" | "BFDDown" | "TooManyPrefixes" | "Flapping" | "NoLocalAddress" | "Fault" | "NotConnected" | "CannotListen" | "NoRouter" | "ManyRouters" | "WrongRole" | "UnwantedPrefixes";

// FrontendStatus is a frontend over all machines that have its VIP.
export interface FrontendStatus extends FrontendKey {
  owner: Object;
  // of proxies, which are its backends
  listener?: ListenerID;
  machines: string[] | null;
  // State is balanced, pending, refused or idle (no backend takes new flows).
  state: string;
  message?: string;
  // Backends that there are, and those of them that take new flows.
  backends: number;
  available: number;
  // At says what each connected machine of its VIP does about it, sorted by machine.
  at: FrontendAt[] | null;
}

// FrontendAt is a frontend at one machine.
export interface FrontendAt {
  machine: string;
  state: FrontendState;
  mode?: ForwardMode;
  dataPlane?: DataPlaneKind;
  message?: string;
  available: number;
}

// FrontendState is what a machine does about a frontend.
export type FrontendState = "balanced" | "decap" | "pending" | "refused";

// ForwardMode is how a packet gets from the load balancer to the backend.
export type ForwardMode = "" | "Local" | "NAT" | "DSRGeneve" | "DSRIPIP" | "DSRL2";

// DataPlaneKind is what carries a frontend out in the kernel.
export type DataPlaneKind = "" | "XDP" | "NFTables" | "IPVS";

// Object names a resource of the API that said something: the owner of a route,
// the bearer of a status. An object without a name stands for all of its kind, in its
// namespace if it has one; SharingServices and SharingIngressRoutes stand for some.
export interface Object {
  // as in the manifest: "HTTPRoute"
  kind: string;
  // empty for cluster-scoped kinds
  namespace?: string;
  name: string;
}

// FrontendKey identifies a frontend: where clients send to.
export interface FrontendKey {
  vip: string;
  transport: Transport;
  port: number;
}

// Transport is the protocol of a frontend.
export type Transport = "TCP" | "UDP";

// Problem says what is wrong, with what, and why.
export interface Problem {
  severity: Severity;
  // an Object's String, or "Machine edge-1"
  subject: string;
  reason: string;
  message: string;
}

// Severity orders problems.
export type Severity = "error" | "warning";

// Revision is one step of routing that a plane can turn back.
export interface Revision {
  revision: number;
  epoch: number;
  at: string;
  // Changes of listeners, hosts and server names, and the first of their Owners.
  changes: number;
  owners: Object[] | null;
  // Held is set when a Freeze holds it back.
  held?: boolean;
  // Kept is set once it would outlive the plane.
  kept?: boolean;
  // First is the oldest state that is known: LetGo revisions before it are no more, and
  // Lacks says why none of a plane before this one are.
  first?: boolean;
  letGo?: number;
  lacks?: string;
}

// Route is one route of a virtual host as the edges have it, for people.
export interface Route {
  listener: ListenerID;
  host: string;
  // "prefix /api", "exact / method GET"
  match: string;
  name: string;
  owner: Object;
  // State of the owner: programmed, pending, invalid or orphaned.
  state: string;
  // Action is empty for a route that forwards: "redirect 301 to https", "respond 404".
  action?: string;
  backends: RouteBackend[] | null;
}

// RouteBackend is a share of a route's requests.
export interface RouteBackend {
  // Group is empty for the share of a broken reference, which is answered 500.
  group: GroupID;
  // Percent of the route's requests, by weight.
  percent: number;
  // Ready backends of all, by the API, and healthy ones by the proxies that have the
  // fewest; HealthKnown says that a proxy was asked.
  ready: number;
  total: number;
  healthy: number;
  healthKnown: boolean;
  // that the route sent to the group, at all proxies that answer
  requests: number;
  errors: number;
}

// GroupID identifies a backend group: "namespace/service/port", with a suffix
// when the route asks for options of its own.
export type GroupID = string;

// ClientSettings is how a listener treats clients. Zero values are the defaults of an
// edge that clients reach directly.
export interface ClientSettings {
  // TrustedHops is how many proxies in front append to X-Forwarded-For; nil leaves it to
  // the machine.
  trustedHops?: number;
  // AcceptProxyProtocol takes the client's address from a PROXY header (v1 or v2) that
  // every connection must begin with.
  acceptProxyProtocol?: boolean;
  // HTTP3 serves HTTP/3 at the same port over UDP, and says so (RFC 7838).
  http3?: boolean;
  // EscapedSlashes is what becomes of paths with %2F or %5C; empty is to redirect.
  escapedSlashes?: EscapedSlashes;
  // KeepSlashes leaves "//" in paths as it is; else it is "/".
  keepSlashes?: boolean;
  // ForwardedHost and ForwardedPort tell backends what the client asked for (X-Forwarded-Host, -Port).
  forwardedHost?: boolean;
  forwardedPort?: boolean;
  // ErrorPages are shown in place of the proxy's own errors.
  errorPages?: ErrorPage[];
  // MaxConnections at one machine; more are refused. 0 is no limit but the machine's.
  maxConnections?: number;
  // MaxHeaderBytes of a request; 0 is 60 KiB. MaxHeaders is their number; 0 is 100.
  maxHeaderBytes?: number;
  maxHeaders?: number;
  // MaxRequestsPerConnection after which a connection is closed in order; 0 is none.
  maxRequestsPerConnection?: number;
  // MaxStreams under way at once on one HTTP/2 or HTTP/3 connection; 0 is 100.
  maxStreams?: number;
  // HeadersTimeout, RequestTimeout and IdleTimeout bound how long clients may take to send
  // the headers (0 is 10 s), the whole request (0 is none), and nothing at all (0 is 5 min).
  headersTimeoutNanoseconds?: number;
  requestTimeoutNanoseconds?: number;
  idleTimeoutNanoseconds?: number;
  // MinTLS is the least version for server names that ask for none themselves.
  minTLS?: TLSVersion;
  // AccessLog replaces the machine's own choice.
  accessLog?: AccessLog;
  tracing?: Tracing;
}

// EscapedSlashes is what becomes of paths with escaped slashes.
export type EscapedSlashes = "" | "unescape" | "reject" | "keep";

// ErrorPage is what clients are shown in place of errors.
export interface ErrorPage {
  // Statuses are sorted: "404", "5xx".
  statuses: string[] | null;
  contentType: string;
  body: string;
  // Backends says that it stands in place of backends' answers, too.
  backends?: boolean;
}

// TLSVersion is "1.0" to "1.3"; empty is the default, 1.2.
export type TLSVersion = string;

// AccessLog is where a line a request goes.
export interface AccessLog {
  off?: boolean;
  // Fields to write, as names of the documented set; empty is all.
  fields?: string[];
  // Template makes lines of text; empty makes JSON.
  template?: LogPart[];
  // Collector takes them over OTLP (gRPC); empty writes lines to the machine's file.
  collector?: GroupID;
  // Errors writes requests only that were answered 4xx or 5xx or not at all, and calls of gRPC that failed.
  errors?: boolean;
  // Percent of the other requests are written, too; 0 is all of them.
  percent?: number;
}

// LogPart is a part of a template. Exactly one field is set.
export interface LogPart {
  text?: string;
  // Field is a name of the documented set.
  field?: string;
  // Request and Response are names of headers, in lower case.
  request?: string;
  response?: string;
}

// Tracing reports spans to an OpenTelemetry collector over gRPC.
export interface Tracing {
  collector: GroupID;
  // Percent of requests that begin a trace, 0 to 100; traces that clients began go on.
  percent: number;
  serviceName?: string;
}

// ClientValidation asks clients for certificates (mutual TLS).
export interface ClientValidation {
  // sorted; one of them must have signed
  authorities: AuthorityID[] | null;
  // Optional lets clients in without a certificate, or with one that does not verify
  // (Gateway API: AllowInsecureFallback).
  optional?: boolean;
}

// AuthorityID identifies a bundle of CA certificates: "ConfigMap/namespace/name" or
// "Secret/namespace/name".
export type AuthorityID = string;

// Listener is a port at which proxies take requests.
export interface Listener {
  id: ListenerID;
  port: number;
  protocol: Protocol;
  // Addresses at which it listens, sorted; empty is every address of the machine.
  addresses?: string[];
  // ClientValidation asks TLS clients for certificates, whatever server name they want.
  clientValidation?: ClientValidation;
  // Clients is how a policy wants clients treated; nil is the defaults.
  clients?: ClientSettings;
}

// Frontend is a VIP, a port and a protocol, with how its flows reach backends. Zero
// values are the defaults.
export interface Frontend extends FrontendKey {
  // Owner is the Service, the Gateway, or the resource that has the VIP.
  owner: Object;
  // Listener is set for a listener of the proxies: the backends are the proxies of the
  // machines that have the VIP, and Targets is empty.
  listener?: ListenerID;
  // Targets are the sets that share the flows, sorted by set.
  targets?: Target[];
  // Machines that have the VIP, sorted.
  machines: string[] | null;
  mode?: ForwardMode;
  dataPlane?: DataPlaneKind;
  hash?: FlowHash;
  // Affinity keeps a client address at its backend until it has been silent for so long;
  // 0 is none.
  affinityNanoseconds?: number;
  // Sources that may be clients, sorted; empty is everybody.
  sources?: string[];
  // NewFlows that a machine takes in a second; more are dropped. 0 is no limit.
  newFlows?: number;
  // Drain is how long a backend that is to take no new flow keeps its flows.
  drainNanoseconds?: number;
  // LocalOnly takes new flows to backends of the machine that they reach only, which
  // announces the VIP while it has one (externalTrafficPolicy: Local).
  localOnly?: boolean;
  // Panic is the share of healthy backends, percent, below which all count as healthy; 0
  // is never.
  panicPercent?: number;
  check?: HealthCheck;
  quic?: QUICServer;
  // Weights of single backends among their set, by address; 100 where nothing is said.
  weights?: Record<string, number>;
  // Drained backends take no new flow, by address.
  drained?: string[];
  // Scheduler of IPVS: wlc, wrr or mh; empty is mh. Other data planes hash always.
  scheduler?: string;
  // MaxFlows to one backend (IPVS: uthreshold); 0 is no limit.
  maxFlows?: number;
}

// Target is a share of a frontend's flows.
export interface Target {
  set: SetID;
  weight: number;
}

// SetID identifies a backend set: "namespace/service/port".
export type SetID = string;

// FlowHash is what of a packet chooses its row in the lookup table.
export type FlowHash = "" | "ThreeTuple" | "Source";

// HealthCheck asks each backend whether it works. Zero values are the defaults.
export interface HealthCheck {
  kind?: CheckKind;
  // 0 is the backend's own
  port?: number;
  path: string;
  // Host header
  host: string;
  intervalNanoseconds: number;
  timeoutNanoseconds?: number;
  // Jitter is the share of the interval, percent, that is drawn at random; 0 is 10.
  jitterPercent?: number;
  // failures in a row until a backend is out (fall)
  unhealthy: number;
  // successes in a row until it is back (rise)
  healthy: number;
  // Codes of HTTP that are healthy, as ranges from and to; empty is 200.
  codes?: number[][];
  // of gRPC's health protocol
  service?: string;
  // Send is what a UDP check sends, Expect what the answer must begin with.
  send?: string;
  expect?: string;
  // ServerName that a TLS handshake asks for; empty is Host.
  serverName?: string;
  // SendProxyProtocol begins connections with a PROXY header (v2) of nobody in particular.
  sendProxyProtocol?: boolean;
  // Presumed says that nobody asked for the check, so that it must not do harm. A machine says
  // nothing of a backend before it has seen it answer well: something on its way may keep it
  // out, but not clients. And where all backends of a frontend are out, all are in.
  presumed?: boolean;
}

// CheckKind is how a backend is asked.
export type CheckKind = "" | "HTTP2" | "HTTPS" | "TCP" | "TLS" | "GRPC" | "GRPCS" | "UDP" | "None";

// QUICServer says where in a connection ID (RFC 9000, 5.1) the server wrote who it is, so
// that a client that changes its address stays (draft-ietf-quic-load-balancers, plaintext).
export interface QUICServer {
  // of the server ID in the connection ID, bytes
  offset: number;
  // of the server ID, 1 to 8 bytes
  length: number;
}

// BackendTLS speaks TLS with backends and verifies them.
export interface BackendTLS {
  // ServerName is sent, and must be in the certificate unless Names says other names. Empty
  // sends none; then Names or Unverified is set.
  serverName: string;
  // Names of which the certificate must have one.
  names?: AltName[];
  // Authorities that may have signed; empty are those of the machine's system.
  authorities?: AuthorityID[];
  // Unverified takes whatever certificate the backend shows.
  unverified?: boolean;
  // Certificate that the proxy shows; empty is none.
  certificate?: CertificateID;
}

// AltName is a subject alternative name. One of them is set.
export interface AltName {
  dns?: string;
  uri?: string;
}

// BackendLimits bound what one machine sends to a group at once (circuit breaker). 0 is
// no limit.
export interface BackendLimits {
  maxConnections?: number;
  maxPending?: number;
  maxRequests?: number;
  maxRetryBudgetPercent?: number;
  // MaxRetries is how many retries may be under way; MaxRetryBudget goes first.
  maxRetries?: number;
}

// OutlierDetection takes a backend out for a while that keeps failing.
export interface OutlierDetection {
  // 5xx or no answer
  consecutiveErrors: number;
  intervalNanoseconds: number;
  ejectionTimeNanoseconds: number;
  maxEjectedPercent: number;
}

// HeaderEdits change headers: Remove first, then Set, then Add. Names are lower case and
// sorted.
export interface HeaderEdits {
  set?: Header[];
  add?: Header[];
  remove?: string[];
}

// Header is one header.
export interface Header {
  name: string;
  value: string;
}

// Sticky keeps a client at the backend that it got first (session persistence, GEP-1619).
export interface Sticky {
  // of the cookie or header
  name: string;
  // Header carries the session in a header instead of a cookie.
  header?: boolean;
  // Lifetime of the cookie; 0 lets it end with the client's session.
  lifetimeNanoseconds?: number;
  // of the cookie
  path?: string;
}

// Mirror sends copies of a share of requests to a group.
export interface Mirror {
  group: GroupID;
  numerator: number;
  denominator: number;
}

// Respond answers without a backend.
export interface Respond {
  status: number;
  body?: string;
}

// Redirect answers with another location. What is empty stays as the client asked, but
// the port: without Port it is the scheme's own if Scheme is set, else the listener's.
export interface Redirect {
  scheme?: string;
  host?: string;
  port?: number;
  path?: PathRewrite;
  // 301, 302, 303, 307 or 308
  status: number;
}

// PathRewrite replaces a path.
export interface PathRewrite {
  kind: PathRewriteKind;
  // begins with "/", or is empty for Prefix
  value: string;
}

// PathRewriteKind says which part of a path is replaced.
export type PathRewriteKind = "Prefix" | "Full";

// Balance is how a proxy picks a backend of a group.
export type Balance = "" | "LeastRequest" | "Random" | "Cookie";

// BackendProtocol is what backends of a group speak.
export type BackendProtocol = "" | "HTTP2" | "Auto" | "TCP";

// Status is what a plane knows at one moment, for people: `fairlead status`, the
// console and the support bundle show it. Slices are sorted by name.
export interface Status {
  plane: PlaneStatus;
  machines: MachineStatus[] | null;
  listeners: ListenerStatus[] | null;
  routes: RouteStatus[] | null;
  // OfOthers counts the IngressRoutes whose class is another controller's. Routes does not have them.
  ofOthers?: number;
  vips: VIPStatus[] | null;
  frontends?: FrontendStatus[];
  // Sessions are sorted by machine and peer.
  sessions: SessionStatus[] | null;
  certificates?: CertificateStatus[];
  // Upstreams counts them; zero where none is followed.
  upstreams?: UpstreamSummary;
  // Problems is everything that is not as it should be, worst first.
  problems: Problem[] | null;
}

// UpstreamSummary counts upstreams, and those of which nothing is missing.
export interface UpstreamSummary {
  total: number;
  current: number;
}

// PlaneStatus is the plane's own part of a Status.
export interface PlaneStatus {
  version: string;
  identity: string;
  leading: boolean;
  // Starting: the plane holds the Lease and does not serve agents yet. Leader is then its own address.
  startingToLead?: boolean;
  // Ending: the plane ends and serves no agents any more. If it led, Leader is its own address until the Lease is free.
  ending?: boolean;
  // host:port of the leader's agent endpoint
  leader?: string;
  // LeaderConsole is host:port of the leader's console, as far as known: at its machine
  // when that is a loopback address.
  leaderConsole?: string;
  epoch: number;
  revision: number;
  started: string;
  // Freeze is set while routing is frozen.
  freeze?: FreezeStatus;
}

// FreezeStatus says which state of routing holds.
export interface FreezeStatus {
  since: string;
  asOf: string;
  reason?: string;
  // Held is how many listeners, hosts and server names are not as their resources want.
  held: number;
  // Unknown: this plane began after AsOf. It sends machines nothing, not even endpoints.
  unknown?: boolean;
}

// MachineStatus is one machine as its agent last reported it.
export interface MachineStatus {
  name: string;
  connected: boolean;
  lastReport?: string;
  cordoned: boolean;
  addresses: string[] | null;
  agentVersion: string;
  proxy: ProxyStatus;
  // revision that the proxy runs
  applied: number;
  // revision that the agent holds
  delivered: number;
  // last revision that concerned the machine
  wanted: number;
  // Announces are the VIPs that it announces by its last report, sorted.
  announces?: string[];
  // JustCame: its stream is so new that routers may keep routes of the agent before, though this
  // one says that it withholds them (RFC 4724).
  justCame?: boolean;
  refused?: RefusedItem[];
}

// ProxyStatus is the machine's Envoy.
export interface ProxyStatus {
  // starting, ready, draining, backoff, stopped, off (the machine only has backends), none (an edge that is to run none), unknown
  state: string;
  version?: string;
  starts: number;
  message?: string;
  rssBytes: number;
  requests: number;
}

// RefusedItem is a resource that a proxy does not run as wanted.
export interface RefusedItem {
  // refused or waiting
  kind: string;
  type: string;
  name: string;
  message: string;
}

// ListenerStatus is one listener over all machines.
export interface ListenerStatus {
  id: ListenerID;
  port: number;
  protocol: Protocol;
  hosts: number;
  machines: string[] | null;
}

// ListenerID identifies a listener over all machines: "http-80" is the one that is
// shared by all who want the port at the machines' own addresses, "http-80_team_web" the
// one of Gateway team/web at addresses of its own.
export type ListenerID = string;

// Protocol is what a listener speaks with clients.
export type Protocol = "HTTP" | "HTTPS";

// RouteStatus is one route resource.
export interface RouteStatus {
  kind: string;
  namespace: string;
  name: string;
  hosts: string[] | null;
  // State is programmed, pending, invalid or orphaned.
  state: string;
  message?: string;
}

// CertificateStatus is a certificate that machines show, and for whom.
export interface CertificateStatus {
  id: CertificateID;
  names: string[] | null;
  notBefore: string;
  notAfter: string;
  // StapledUntil is when the OCSP response that is shown with it ends; zero without one.
  stapledUntil?: string;
  // Owners and Hosts show it, sorted; empty when it is shown to backends.
  owners?: string[];
  hosts?: string[];
}

// CertificateID identifies a certificate with its key: "namespace/name" of the Secret.
export type CertificateID = string;

// Current is which revision a plane had published when a list was as it is shown, and the epoch in which it leads.
export interface Current {
  epoch: number;
  revision: number;
}

// TapEvent is a record, or how the machines are with a tap.
export interface TapEvent {
  record?: TapRecord;
  // Dropped is how many records that match were beyond a bound since the last event.
  dropped?: number;
  // Machines that run a proxy, sorted, where something of them is new.
  machines?: TapMachine[];
  // Note is why nothing may come, in the first event; empty: nothing is against it.
  note?: string;
}

// TapMachine is how a machine is with a tap.
export interface TapMachine {
  machine: string;
  // Percent of the requests are recorded.
  percent: number;
  // Unable is why none is recorded; empty: they are.
  unable?: string;
}

// TapRecord is one request that a proxy has answered. It has no body, and no credential.
export interface TapRecord {
  at: string;
  machine: string;
  // Route is its name; empty: no route matched. Owner is the resource that owns it, and Rule the field of the owner that
  // the request follows, both as an Explanation has them.
  route: string;
  owner: string;
  rule: string;
  // Group of backends, and its Service, as namespace/name.
  group: string;
  service: string;
  // Backend and Client are host:port.
  backend: string;
  client: string;
  // Method is empty where it is none of RFC 9110 and RFC 5789, or nothing could be read of the request.
  method: string;
  host: string;
  path: string;
  // Status is 0 where there was no answer. Details are the proxy's reason for it.
  status: number;
  details: string;
  // Seconds that the request took, and those until the first byte of the backend's answer; 0: there was none.
  seconds: number;
  firstByteSeconds: number;
  // Attempts at backends.
  attempts: number;
  receivedBytes: number;
  sentBytes: number;
  requestID: string;
  // Headers of the request, and of the answer, that are recorded.
  headers: Record<string, string> | null;
  responseHeaders: Record<string, string> | null;
}

// Top is what proxies have answered within some seconds.
export interface Top {
  // Sample is the number of the later time. Whoever names it as `after` is answered after the next.
  sample?: number;
  // Seconds between the two times at which proxies were asked.
  seconds: number;
  // Machines whose proxies answered both times, sorted.
  machines: string[] | null;
  // Total is the number of rows, of which Rows may be the first, and Rate the requests a second of all.
  total: number;
  rate: number;
  rows: TopRow[] | null;
}

// TopRow is what proxies have answered of one route, host, namespace, listener or upstream, or what flows a frontend or backend has.
export interface TopRow {
  name: string;
  // Rate is requests a second, and Rates by the class of the status: none (the client left before an answer), 1xx to 5xx. Of
  // frontends and their backends, Rate is new flows a second; of backends of measured groups, requests a second: Rates[5] failed, and
  // Rates[2] did not.
  rate: number;
  rates: number[] | null;
  // Requests since the proxies began, or new flows since the data planes did.
  requests: number;
  // P50 and P99 are times that half and 99 % of Timed requests did not exceed, in seconds. Timed is 0 where none is known. Of 1 request,
  // P50 says little, and so does P99 of fewer than 100.
  p50Seconds?: number;
  p99Seconds?: number;
  timed?: number;
  // Received and Sent are bytes a second from and to clients. Routes and hosts have none; frontends and backends have Received.
  receivedBytes?: number;
  sentBytes?: number;
  // InFlight are requests that a backend of a measured group has not ended, and FirstByte is the mean time until the first byte of
  // its answers, in seconds; 0: it has answered none.
  inFlight?: number;
  firstByteSeconds?: number;
}

// Upstream is one upstream as the plane knows it now, for people.
export interface Upstream {
  name: string;
  // Kubernetes or OpenStack; empty: the Upstream is deleted
  type: string;
  // Deleted: there is no Upstream of the name, but Services of it are left. Used are those to which something routes,
  // sorted; nil while that is not known.
  deleted?: boolean;
  used?: string[];
  // Conditions are Accepted, Reachable, Current and Stored.
  conditions: UpstreamCondition[] | null;
  // Seen is what the upstream has, Replicated what of it is in effect here, and Held what of that the upstream does not
  // list any more.
  seen: UpstreamCounts;
  replicated: UpstreamCounts;
  held: UpstreamCounts;
  // Refused counts what is left out; Refusals are the first 1,000.
  refused: number;
  refusals: UpstreamRefusal[] | null;
  // LastContact is when the upstream answered last, and LastSweep when its last complete list was read.
  lastContact?: string;
  lastSweep?: string;
  // Lag is how old the last contact is.
  lagNanoseconds: number;
  // Requests to the upstream's API since this plane began to lead.
  requests: UpstreamRequests;
  // WritesQueued are objects that are in effect and not stored yet, or stored and to be deleted.
  writesQueued: number;
  // Changes are the last ones, newest first. Only the answer about one upstream has them.
  changes?: Passage[];
}

// UpstreamCondition is a condition of an Upstream.
export interface UpstreamCondition {
  type: string;
  // True, False or Unknown
  status: string;
  reason: string;
  message: string;
  since?: string;
}

// UpstreamCounts are numbers of services and endpoints.
export interface UpstreamCounts {
  services: number;
  endpoints: number;
}

// UpstreamRequests count the requests to an upstream's API.
export interface UpstreamRequests {
  // Answers by class: "2xx", "4xx", and "none" without an answer. Classes without answers are left out.
  answers?: Record<string, number>;
  // AnswerTime is the sum of the times until answers began.
  answerNanoseconds: number;
  // of all answers
  bytes: number;
  // Throttled counts requests that waited because the API had asked for fewer.
  throttled: number;
}

// Passage is the way of one change of a service through the plane.
export interface Passage {
  upstream: string;
  // "scope/name" in the upstream
  service: string;
  // Seen is when the source saw the change.
  seen: string;
  // Decided is when it came into effect in the plane; zero: it waits, or is held.
  decided?: string;
  // Published is when machines were sent it, with this revision. Unused: nothing that machines are sent follows from it.
  published?: string;
  revision?: number;
  unused?: boolean;
  // InForce is when every connected machine that it concerns carried it out.
  inForce?: string;
}

// UpstreamRefusal says what was left out, and why.
export interface UpstreamRefusal {
  // of the upstream
  object: string;
  reason: string;
  message: string;
}
