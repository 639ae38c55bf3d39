"""Kafka's settings of TLS, SASL, delegation tokens and access control.

Those that promise protection which this version does not give are refused, so that nobody relies
on it; those that only tune it have no effect.
"""

from typing import Final

from quipu.model.kafka_settings.rows import KafkaSetting, no_effect, refused

SECURITY: Final[tuple[KafkaSetting, ...]] = (
    *refused(
        "this version has no TLS: remove it, and use PLAINTEXT listeners on a network that you "
        "trust",
        """
        ssl.client.auth                 string    none  per-broker
        ssl.engine.factory.class        class     null  per-broker
        ssl.key.password                password  null  per-broker
        ssl.keystore.certificate.chain  password  null  per-broker
        ssl.keystore.key                password  null  per-broker
        ssl.keystore.location           string    null  per-broker
        ssl.keystore.password           password  null  per-broker
        ssl.truststore.certificates     password  null  per-broker
        ssl.truststore.location         string    null  per-broker
        ssl.truststore.password         password  null  per-broker
        """),
    *no_effect(
        "this version has no TLS",
        """
        ssl.allow.dn.changes                   boolean  false            read-only
        ssl.allow.san.changes                  boolean  false            read-only
        ssl.cipher.suites                      list     ""               per-broker
        ssl.enabled.protocols                  list     TLSv1.2,TLSv1.3  per-broker
        ssl.endpoint.identification.algorithm  string   https            per-broker
        ssl.keymanager.algorithm               string   SunX509          per-broker
        ssl.keystore.type                      string   JKS              per-broker
        ssl.principal.mapping.rules            string   DEFAULT          read-only
        ssl.protocol                           string   TLSv1.3          per-broker
        ssl.provider                           string   null             per-broker
        ssl.secure.random.implementation       string   null             per-broker
        ssl.trustmanager.algorithm             string   PKIX             per-broker
        ssl.truststore.type                    string   JKS              per-broker
        """),
    *refused(
        "this version does not authenticate clients: remove it, and use PLAINTEXT listeners on a "
        "network that only clients that you trust can reach",
        """
        sasl.enabled.mechanisms             list      GSSAPI  per-broker
        sasl.jaas.config                    password  null    per-broker
        sasl.oauthbearer.assertion.private.key.passphrase  password  null    read-only
        sasl.oauthbearer.client.credentials.client.secret  password  null    read-only
        sasl.server.callback.handler.class  class     null    read-only
        """),
    *no_effect(
        "this version does not authenticate clients",
        """
        connection.failed.authentication.delay.ms        int:0..  100             read-only
        connections.max.reauth.ms                        long     0               read-only
        sasl.client.callback.handler.class               class    null            read-only
        sasl.kerberos.kinit.cmd                          string   /usr/bin/kinit  per-broker
        sasl.kerberos.min.time.before.relogin            long     60000           per-broker
        sasl.kerberos.principal.to.local.rules           list     DEFAULT         per-broker
        sasl.kerberos.service.name                       string   null            per-broker
        sasl.kerberos.ticket.renew.jitter                double   0.05            per-broker
        sasl.kerberos.ticket.renew.window.factor         double   0.8             per-broker
        sasl.login.callback.handler.class                class    null            read-only
        sasl.login.class                                 class    null            read-only
        sasl.login.connect.timeout.ms                    int      null            read-only
        sasl.login.read.timeout.ms                       int      null            read-only
        sasl.login.refresh.buffer.seconds                short    300             per-broker
        sasl.login.refresh.min.period.seconds            short    60              per-broker
        sasl.login.refresh.window.factor                 double   0.8             per-broker
        sasl.login.refresh.window.jitter                 double   0.05            per-broker
        sasl.login.retry.backoff.max.ms                  long     10000           read-only
        sasl.login.retry.backoff.ms                      long     100             read-only
        sasl.mechanism.controller.protocol               string   GSSAPI          read-only
        sasl.mechanism.inter.broker.protocol             string   GSSAPI          per-broker
        sasl.oauthbearer.assertion.algorithm             string   RS256           read-only
        sasl.oauthbearer.assertion.claim.aud             string   null            read-only
        sasl.oauthbearer.assertion.claim.exp.seconds  int:0..86400  300  read-only
        sasl.oauthbearer.assertion.claim.iss             string   null            read-only
        sasl.oauthbearer.assertion.claim.jti.include     boolean  false           read-only
        sasl.oauthbearer.assertion.claim.nbf.seconds  int:0..3600  60  read-only
        sasl.oauthbearer.assertion.claim.sub             string   null            read-only
        sasl.oauthbearer.assertion.file                  string   null            read-only
        sasl.oauthbearer.assertion.private.key.file      string   null            read-only
        sasl.oauthbearer.assertion.template.file         string   null            read-only
        sasl.oauthbearer.client.credentials.client.id    string   null            read-only
        sasl.oauthbearer.clock.skew.seconds              int      30              read-only
        sasl.oauthbearer.expected.audience               list     ""              read-only
        sasl.oauthbearer.expected.issuer                 string   null            read-only
        sasl.oauthbearer.jwks.endpoint.refresh.ms        long     3600000         read-only
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms  long  10000  read-only
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms  long     100             read-only
        sasl.oauthbearer.jwks.endpoint.url               string   null            read-only
        sasl.oauthbearer.jwt.retriever.class  class  \
            org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever  read-only
        sasl.oauthbearer.jwt.validator.class  class  \
            org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator  read-only
        sasl.oauthbearer.scope                           string   null            read-only
        sasl.oauthbearer.scope.claim.name                string   scope           read-only
        sasl.oauthbearer.sub.claim.name                  string   sub             read-only
        sasl.oauthbearer.token.endpoint.url              string   null            read-only
        sasl.server.max.receive.size                     int      524288          read-only
        security.providers                               string   null            read-only
        """),
    *refused(
        "this version does not authenticate clients, so there are no delegation tokens: remove it",
        """
        delegation.token.secret.key  password  null  read-only
        """),
    *no_effect(
        "there are no delegation tokens",
        """
        delegation.token.expiry.check.interval.ms  long:1..  3600000    read-only
        delegation.token.expiry.time.ms            long:1..  86400000   read-only
        delegation.token.max.lifetime.ms           long:1..  604800000  read-only
        """),
    *refused(
        "this version has no access control, every client may do everything: remove it, and let "
        "only clients that you trust reach the listeners",
        """
        authorizer.class.name  string  ""  read-only
        """),
    *no_effect(
        "there is no access control that could use the names of clients",
        """
        principal.builder.class  class  \
            org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder  \
            per-broker
        """),
    *refused(
        "other nodes connect to peer.listener, which peer.secret protects: only PLAINTEXT is "
        "allowed here",
        """
        security.inter.broker.protocol  string  PLAINTEXT  read-only
        """),
    *refused(
        "classes of Java do not run here, and a policy that is not enforced would be relied on: "
        "remove it",
        """
        alter.config.policy.class.name  class  null  read-only
        create.topic.policy.class.name  class  null  read-only
        """),
    *refused(
        "classes of Java do not run here, and this version has no quotas for clients: remove it",
        """
        client.quota.callback.class  class  null  read-only
        """),
    *refused(
        "classes of Java do not run here, so values such as ${file:PATH:KEY} would be taken "
        "literally: write the values themselves, or give them as QUIPU_... environment variables",
        """
        config.providers  list  ""  cluster-wide
        """),
)
