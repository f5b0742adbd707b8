{{- /* Gives the DNS port of kubedns in .containers if secondaries need it besides port 53, and nothing otherwise. */ -}}
{{- define "transfer.port" -}}
{{- range .containers -}}
{{- if and (eq .name "kubedns") (include "flag" (dict "flag" "transfer-to" "args" .args)) -}}
{{- $port := include "flag" (dict "flag" "dns-port" "args" .args) -}}
{{- if ne $port "53" }}{{ $port }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The NetworkPolicy of the pods of a Deployment, .deployment, whose containers have all their arguments. */ -}}
{{- define "networkPolicy" -}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .deployment.metadata.name }}
  namespace: {{ .deployment.metadata.namespace }}
  labels:
    {{- .deployment.metadata.labels | toYaml | nindent 4 }}
spec:
  podSelector:
    {{- .deployment.spec.selector | toYaml | nindent 4 }}
  policyTypes: [Ingress]
  ingress:
  # DNS from everywhere: no selector can match clients in the host network or outside the cluster.
  - ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
    {{- with include "transfer.port" .deployment.spec.template.spec }}
    # Zone transfers from kubedns itself, because dnsmasq has port 53. Secondaries may ask for the SOA record over UDP.
    - {port: {{ . }}, protocol: UDP}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  {{- with .root.Values.networkPolicy.metricsFrom }}
  # Metrics of sidecar, kubedns and nanny, and the status page.
  - from:
    {{- toYaml . | nindent 4 }}
    ports:
    - {port: 10054, protocol: TCP}
    - {port: 10055, protocol: TCP}
    - {port: 10056, protocol: TCP}
  {{- end }}
{{- end -}}
