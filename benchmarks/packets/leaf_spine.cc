// Messages over a leaf-spine network of ns-3, TCP with ECN (DCTCP) over queues that mark.
// Arguments: leaves, hosts of a leaf, spines, Gbit/s of every link, latency of a link in us,
// "spray" (each packet takes any spine) or "hash" (a destination's packets take one).
// Input: lines of source, target, bytes. Output: seconds until the last byte is there.
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <iostream>
#include <string>
#include <vector>

using namespace ns3;

static uint64_t g_left = 0;
static double g_end = 0.0;

static void Received(Ptr<const Packet> packet, const Address&) {
  g_left -= packet->GetSize();
  if (g_left == 0) {
    g_end = Simulator::Now().GetSeconds();
    Simulator::Stop();
  }
}

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const int leaves = atoi(argv[1]), each = atoi(argv[2]), spines = atoi(argv[3]);
  const std::string rate = std::string(argv[4]) + "Gbps", delay = std::string(argv[5]) + "us";
  const bool spray = std::string(argv[6]) == "spray";
  Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpDctcp::GetTypeId()));
  Config::SetDefault("ns3::TcpSocketBase::UseEcn", StringValue("On"));
  Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(false));
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(4096));
  Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(32));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 26));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 26));
  Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
  Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(1)));
  Config::SetDefault("ns3::RedQueueDisc::UseEcn", BooleanValue(true));
  Config::SetDefault("ns3::RedQueueDisc::UseHardDrop", BooleanValue(false));
  Config::SetDefault("ns3::RedQueueDisc::MeanPktSize", UintegerValue(4096));
  Config::SetDefault("ns3::RedQueueDisc::MaxSize", QueueSizeValue(QueueSize("1024p")));
  Config::SetDefault("ns3::RedQueueDisc::QW", DoubleValue(1.0));
  Config::SetDefault("ns3::RedQueueDisc::MinTh", DoubleValue(20));
  Config::SetDefault("ns3::RedQueueDisc::MaxTh", DoubleValue(21));
  Config::SetDefault("ns3::Ipv4GlobalRouting::RandomEcmpRouting", BooleanValue(spray));

  NodeContainer host, leaf, spine;
  host.Create(leaves * each);
  leaf.Create(leaves);
  spine.Create(spines);
  InternetStackHelper stack;
  if (!spray) {
    Ipv4StaticRoutingHelper fixed;
    stack.SetRoutingHelper(fixed);
  }
  stack.InstallAll();
  PointToPointHelper wire;
  wire.SetDeviceAttribute("DataRate", StringValue(rate));
  wire.SetDeviceAttribute("Mtu", UintegerValue(4300));
  wire.SetChannelAttribute("Delay", StringValue(delay));
  TrafficControlHelper marks;
  marks.SetRootQueueDisc("ns3::RedQueueDisc", "LinkBandwidth", StringValue(rate), "LinkDelay",
                         StringValue(delay));
  Ipv4AddressHelper address("10.0.0.0", "255.255.255.0");
  std::vector<Ipv4Address> at;
  Ipv4StaticRoutingHelper fixed;
  auto table = [&](Ptr<Node> node) { return fixed.GetStaticRouting(node->GetObject<Ipv4>()); };
  for (int h = 0; h < leaves * each; h++) {
    NetDeviceContainer pair = wire.Install(host.Get(h), leaf.Get(h / each));
    marks.Install(pair);
    Ipv4InterfaceContainer both = address.Assign(pair);
    address.NewNetwork();
    at.push_back(both.GetAddress(0));
    if (!spray) table(host.Get(h))->SetDefaultRoute(both.GetAddress(1), 1);
  }
  for (int l = 0; l < leaves; l++)
    for (int s = 0; s < spines; s++) {
      NetDeviceContainer pair = wire.Install(leaf.Get(l), spine.Get(s));
      marks.Install(pair);
      Ipv4InterfaceContainer both = address.Assign(pair);
      address.NewNetwork();
      if (spray) continue;
      for (int h = 0; h < leaves * each; h++) {
        if (h / each != l && h % spines == s)
          table(leaf.Get(l))->AddHostRouteTo(at[h], both.GetAddress(1), each + 1 + s);
        if (h / each == l) table(spine.Get(s))->AddHostRouteTo(at[h], both.GetAddress(0), l + 1);
      }
    }
  if (spray) Ipv4GlobalRoutingHelper::PopulateRoutingTables();

  int source, target, port = 1000;
  uint64_t bytes;
  while (std::cin >> source >> target >> bytes) {
    g_left += bytes;
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
    ApplicationContainer there = sink.Install(host.Get(target));
    there.Get(0)->TraceConnectWithoutContext("Rx", MakeCallback(&Received));
    BulkSendHelper send("ns3::TcpSocketFactory", InetSocketAddress(at[target], port++));
    send.SetAttribute("MaxBytes", UintegerValue(bytes));
    send.SetAttribute("SendSize", UintegerValue(4096));
    send.Install(host.Get(source)).Start(Seconds(0));
  }
  Simulator::Stop(Seconds(20));
  Simulator::Run();
  std::cout << (g_left == 0 ? g_end : -1.0) << std::endl;
  Simulator::Destroy();
  return 0;
}
