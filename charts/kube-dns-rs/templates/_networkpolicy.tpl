{{- /* Gives "yes" if kubedns has the flag --transfer-to, and nothing otherwise. */ -}}
{{- define "has.transfers" -}}
{{- range .Values.kubedns.args }}{{ if hasPrefix "--transfer-to=" . }}yes{{ end }}{{ end -}}
{{- end -}}

{{- /* The NetworkPolicy of the pods of a Deployment, .deployment. */ -}}
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
    {{- if include "has.transfers" .root }}
    {{- range .deployment.spec.template.spec.containers }}
    {{- range .ports }}
    {{- if eq .name "dns-tcp-local" }}
    # Zone transfers from kubedns itself, because dnsmasq has port 53.
    - {port: {{ .containerPort }}, protocol: TCP}
    {{- end }}
    {{- end }}
    {{- end }}
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
